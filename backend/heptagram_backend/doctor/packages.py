"""What is installed. Each package is tried in a process of its own, where it may crash."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from typing import Any, Final

from heptagram_backend.checkpoint import DEFAULT, is_converted, shipped_file
from heptagram_backend.doctor.finding import Finding
from heptagram_backend.errors import LaunchError, ReleaseError
from heptagram_backend.server.checks import NUMPY_2_TRITON, check_install
from heptagram_backend.server.find import find_triton

_TIMEOUT_S: Final = 300
_BACKEND: Final = "pip install 'heptagram[backend]'"

_TORCH: Final = """
import json, torch
devices = ["cpu"]
if torch.cuda.is_available():
    devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
if hasattr(torch, "npu") and torch.npu.is_available():
    devices += [f"npu:{i}" for i in range(torch.npu.device_count())]
(torch.ones(2, 2) @ torch.ones(2, 2)).sum().item()
print(json.dumps(devices))
"""
_TRANSFORMERS: Final = "import json, transformers; print(json.dumps(transformers.__version__))"
_XGRAMMAR: Final = """
import json, xgrammar
info = xgrammar.TokenizerInfo(["a", "b", "</s>"], stop_token_ids=[2])
xgrammar.GrammarCompiler(info).compile_grammar('root ::= "a" "b"')
print(json.dumps("compiles"))
"""


def triton() -> Finding:
    """The server, its stub, and whether they fit this interpreter and its numpy."""
    try:
        install = find_triton()
    except LaunchError as error:
        return Finding("tritonserver", "missing", "none", str(error))
    version = ".".join(map(str, install.version)) if install.version else "of unknown version"
    found = f"{version} from {install.source}, stub for Python {install.stub_python}"
    try:
        check_install(install)
    except LaunchError as error:
        return Finding("tritonserver", "missing", found, str(error))
    return Finding("tritonserver", "ok", found)


def numpy() -> Finding:
    version = _version("numpy")
    if version is None:
        return Finding("numpy", "missing", "not installed", _BACKEND)
    if int(version.split(".")[0]) >= 2:
        old = ".".join(map(str, NUMPY_2_TRITON))
        return Finding("numpy", "ok", f"{version} (needs Triton {old} or newer)")
    return Finding("numpy", "ok", version)


def torch() -> Finding:
    return _package("torch", _TORCH)


def transformers() -> Finding:
    return _package("transformers", _TRANSFORMERS)


def xgrammar() -> Finding:
    finding = _package("xgrammar", _XGRAMMAR)
    if finding.state == "ok":
        return finding
    advice = f"{finding.advice}. Without it ordinary requests are served and constrained ones refused"
    return Finding(finding.name, finding.state, finding.found, advice)


def checkpoint() -> Finding:
    """The model of the embedded default; ``--model`` serves another."""
    name = DEFAULT
    try:
        source = shipped_file(name)
    except ReleaseError as error:
        return Finding("embedded model", "note", f"{name} is not there", f"{error}. Or serve your own: --model")
    if is_converted(source):
        return Finding("embedded model", "ok", f"{name}, converted")
    return Finding("embedded model", "note", f"{name}, not converted yet", "the first start does it, in a minute")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, code: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name, "missing", "not installed", _BACKEND)
    told, fault = _try(code)
    if fault:
        return Finding(name, "missing", f"{version} does not work: {fault}", f"install it again: {_BACKEND}")
    return Finding(name, "ok", f"{version}{_also(told)}")


def _also(told: Any) -> str:
    return f", {', '.join(told)}" if isinstance(told, list) else ""


def _try(code: str) -> tuple[Any, str | None]:
    """What ``code`` prints as JSON, or the last thing that it said before it failed."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_TIMEOUT_S} s"
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return None, said[-1] if said else f"its process ended with status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]), None
