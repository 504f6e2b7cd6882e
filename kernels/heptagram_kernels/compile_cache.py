"""Where compiled kernels are kept between processes. Imports nothing that compiles: it must stand before those do.

A folder holds one subfolder for each identity of sources and toolchain, so nothing that was compiled from other
sources, or by another compiler, is ever found. ``HEPTAGRAM_COMPILE_CACHE=0`` switches reuse off;
``HEPTAGRAM_COMPILE_CACHE_DIR`` is the folder, by default one in the user's cache.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import MutableMapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

SWITCH: Final = "HEPTAGRAM_COMPILE_CACHE"
FOLDER: Final = "HEPTAGRAM_COMPILE_CACHE_DIR"

_COMPILERS: Final = ("numba", "numpy", "torch", "torch_npu", "triton", "triton-ascend")
# A compiler's own setting wins where the operator made one.
_VARIABLES: Final = {"NUMBA_CACHE_DIR": "numba", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}


def identity(sources: Path = Path(__file__).parent) -> str:
    """A hash of every kernel source below ``sources``, the compilers, the interpreter and the processor."""
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        digest.update(f"{path.relative_to(sources)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    for name in _COMPILERS:
        digest.update(f"{name} {_version(name)}\0".encode())
    digest.update(f"{sys.implementation.cache_tag} {platform.system()} {_processor()}".encode())
    return digest.hexdigest()[:16]


def use(environment: MutableMapping[str, str]) -> Path | None:
    """Point every compiler to the folder of this identity; ``None`` where reuse is off or no folder can be made."""
    if environment.get(SWITCH, "1") == "0":
        return None
    root = environment.get(FOLDER)
    base = Path(root) if root else Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heptagram"
    folder = base / "compiled" / identity()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home: the compilers do without
        return None
    for variable, name in _VARIABLES.items():
        environment.setdefault(variable, str(folder / name))
    return folder


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _processor() -> str:
    """The architecture and, where the system tells, the instruction sets; code for one processor can crash another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return f"{platform.machine()} {next((line for line in lines if line.startswith(('flags', 'Features'))), '')}"
