"""Where the real tritonserver is: on PATH, then /opt/tritonserver, then the PyPI wheel ``nvidia-pytriton``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from heptagram_backend.errors import LaunchError

CONTAINER_ROOT = Path("/opt/tritonserver")
WHEEL = "nvidia-pytriton"
# The wheel is tagged manylinux_2_35, so pip refuses it below; its files need 2.34 themselves.
WHEEL_GLIBC = (2, 35)
# The wheel does not say which Triton it carries.
_WHEEL_TRITON = {"0.7.0": (2, 51)}
_OTHERWISE = "put a tritonserver of your own on PATH or into /opt/tritonserver, or use NVIDIA's container"
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class TritonInstall:
    """One usable tritonserver.

    ``python_backend`` is the folder of the Python backend, ``stub`` the program in which a Python model runs and
    ``stub_python`` the interpreter version it was built for. ``libraries`` are folders for the loader's path.
    """

    source: str
    binary: Path
    python_backend: Path
    stub: Path
    stub_python: str
    libraries: tuple[Path, ...]
    version: tuple[int, int] | None


def find_triton(*, python: str | None = None) -> TritonInstall:
    """The first tritonserver that has a Python backend.

    Args:
        python: the interpreter's version, such as ``3.11``; by default the one that runs this.

    Raises:
        LaunchError: there is none; the message says how to get one on this machine.
    """
    python = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    skipped = []
    for source, root in _candidates():
        install = _describe(source, root, python)
        if install is not None:
            return install
        skipped.append(f"{root} ({source}) has no Python backend")
    raise LaunchError("; ".join([*skipped, why_no_triton()]))


def why_no_triton() -> str:
    """Why there is no tritonserver here, and what to do."""
    missing = (
        f"no tritonserver on PATH, in /opt/tritonserver or from PyPI: pip install 'heptagram[demo]', or {_OTHERWISE}"
    )
    return wheel_obstacle() or missing


def wheel_obstacle(
    *, system: str | None = None, machine: str | None = None, libc: tuple[str, str] | None = None
) -> str | None:
    """Why the wheel cannot be installed here; None where it can.

    Args:
        system: such as ``Linux``; by default what this machine says of itself, as for the others.
        machine: such as ``x86_64``.
        libc: name and version of the C library, such as ``("glibc", "2.36")``.
    """
    system, machine = system or platform.system(), machine or platform.machine()
    name, version = libc or platform.libc_ver()
    if (system, machine) != ("Linux", "x86_64"):
        return f"the wheel {WHEEL} exists for Linux x86_64 only, this is {system} {machine}: {_OTHERWISE}"
    if name != "glibc":
        return f"the wheel {WHEEL} needs glibc, this system has another C library: {_OTHERWISE}"
    if tuple(int(part) for part in version.split(".")[:2]) < WHEEL_GLIBC:
        wanted = ".".join(map(str, WHEEL_GLIBC))
        return f"the wheel {WHEEL} needs glibc {wanted} or newer, this system has {version}: {_OTHERWISE}"
    return None


def _candidates() -> list[tuple[str, Path]]:
    """Roots of installations: the folder that holds ``bin`` and ``backends``."""
    found = []
    on_path = shutil.which("tritonserver")
    if on_path:
        found.append(("PATH", Path(on_path).resolve().parents[1]))
    if (CONTAINER_ROOT / "bin" / "tritonserver").exists():
        found.append((str(CONTAINER_ROOT), CONTAINER_ROOT))
    spec = importlib.util.find_spec("pytriton")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        root = Path(folder) / "tritonserver"
        if (root / "bin" / "tritonserver").exists():
            found.append((WHEEL, root))
    return found


def _describe(source: str, root: Path, python: str) -> TritonInstall | None:
    backend = root / "backends" / "python"
    # The wheel has a stub per interpreter version, NVIDIA's containers a single one.
    stub = root / "python_backend_stubs" / python / _STUB
    if not stub.exists():
        stub = backend / _STUB
    if not (backend / "libtriton_python.so").exists() or not stub.exists():
        return None
    libraries = (root / "lib", root.parents[1] / "nvidia_pytriton.libs")
    return TritonInstall(
        source=source,
        binary=root / "bin" / "tritonserver",
        python_backend=backend,
        stub=stub,
        stub_python=_python_of(stub),
        libraries=tuple(folder for folder in libraries if folder.is_dir()),
        version=_triton_version(source, root),
    )


def _python_of(stub: Path) -> str:
    """The interpreter a stub needs, from the name of the library it is linked to: ``libpython3.11.so.1.0``."""
    match = re.search(rb"libpython(3)(?:-[0-9a-f]+)?\.(\d+)\.so", stub.read_bytes())
    return f"{match[1].decode()}.{match[2].decode()}" if match else "unknown"


def _triton_version(source: str, root: Path) -> tuple[int, int] | None:
    if source == WHEEL:
        return _WHEEL_TRITON.get(importlib.metadata.version(WHEEL))
    try:
        major, minor = (root / "TRITON_VERSION").read_text().strip().split(".")[:2]
        return int(major), int(minor)
    except (OSError, ValueError):
        return None
