"""The assembled backend folder and its view of this interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.server.environment import server_environment
from heptagram_backend.server.find import TritonInstall, find_triton
from heptagram_backend.server.runtime import Runtime, assemble


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TritonInstall:
    """The real installation, with an empty cache."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return find_triton()


def test_assembles_once(install: TritonInstall) -> None:
    runtime = assemble(install)
    stub = runtime.backends / "python" / "triton_python_backend_stub"
    assert stub.read_bytes() == install.stub.read_bytes()
    assert os.access(stub, os.X_OK)
    assert not list(runtime.backends.rglob("__pycache__"))
    made = stub.stat().st_mtime_ns, stub.stat().st_ino
    assert assemble(install) == runtime
    assert (stub.stat().st_mtime_ns, stub.stat().st_ino) == made


def test_its_python_sees_our_packages_and_writes_no_byte_code(install: TritonInstall, tmp_path: Path) -> None:
    runtime = assemble(install)
    code = (
        "import json, sys, numpy, heptagram_wire, heptagram_backend.errors, local;"
        "print(json.dumps([sys.dont_write_bytecode, numpy.__file__, heptagram_wire.__file__, sys.prefix]))"
    )
    (tmp_path / "local.py").write_text("")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [runtime.bin / "python3", "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    import numpy

    import heptagram_wire

    assert json.loads(done.stdout) == [True, numpy.__file__, heptagram_wire.__file__, str(runtime.bin.parent)]
    assert not (tmp_path / "__pycache__").exists()


def test_environment(install: TritonInstall, tmp_path: Path) -> None:
    runtime = Runtime(backends=tmp_path / "backends", bin=tmp_path / "bin")
    base = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/own", "OMP_NUM_THREADS": "64", "KEPT": "1"}
    environment = server_environment(install, runtime, threads=2, base=base)
    assert environment["PATH"] == f"{tmp_path / 'bin'}:/usr/bin"
    assert environment["LD_LIBRARY_PATH"].split(":")[0] == str(install.libraries[0])
    assert environment["LD_LIBRARY_PATH"].endswith(":/own")
    assert (environment["OMP_NUM_THREADS"], environment["OMP_WAIT_POLICY"]) == ("2", "PASSIVE")
    assert environment[VARIABLE] == os.environ[VARIABLE]
    assert environment["KEPT"] == "1"


def test_nothing_heavy_is_loaded_by_the_launcher() -> None:
    code = (
        "import sys, heptagram_backend.server.command;"
        "sys.exit(bool({'torch', 'transformers', 'xgrammar', 'tritonclient'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
