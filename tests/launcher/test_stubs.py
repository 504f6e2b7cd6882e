"""Finding stubs by their command lines, among real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.stubs import Stubs


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Sleeps; its name is that of a stub."""
    return Path(shutil.copy2(shutil.which("sleep") or "", tmp_path / "triton_python_backend_stub"))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def wait_zombie(process: subprocess.Popen[bytes]) -> None:
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass


def test_a_stub_is_known_by_its_version_folder(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    model = tmp_path / "generate" / "7" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("import time; time.sleep(60)")
    names = ("triton_python_backend_stub", "python3")
    started.extend(subprocess.Popen([name, model], executable=sys.executable) for name in names)
    stubs = Stubs(os.getpid())
    stubs.search()
    assert stubs.living("generate", "7")
    assert stubs.ended() == []
    started[0].kill()
    wait_zombie(started[0])
    [stub] = stubs.ended()
    assert (stub.process.pid, stub.model, stub.version) == (started[0].pid, "generate", "7")
    assert not stubs.living("generate", "7")


def test_one_that_was_dead_when_it_was_found(program: Path, started: list[subprocess.Popen[bytes]]) -> None:
    for path in (program, shutil.which("sleep") or ""):
        started.append(subprocess.Popen([path, "0"]))
        wait_zombie(started[-1])
    stubs = Stubs(os.getpid())
    [stub] = stubs.ended()
    assert (stub.process.pid, stub.model, stub.is_zombie) == (started[0].pid, "", True)
    stubs.forget(stub)
    stubs.search()
    assert stubs.ended() == [], "what was forgotten is found again"
    started[0].wait()
    stubs.search()
    assert stubs._forgotten == set()
