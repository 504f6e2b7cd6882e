"""The folder a Python model runs from: Triton's Python backend with our interpreter's stub, and a view of this Python.

The stub embeds Python and ignores ``PYTHON*`` variables; it only takes the first ``python3`` on PATH for its own. So
it gets a small virtual environment whose one ``.pth`` file adds this interpreter's packages and stops byte code from
being written: a ``__pycache__`` in a version folder makes Triton reload a version that has not changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from heptagram_backend.cache import cache_dir, locked, published
from heptagram_backend.server.find import TritonInstall


@dataclass(frozen=True, slots=True)
class Runtime:
    """``backends`` is for ``--backend-directory``; ``bin`` must come first on the server's PATH."""

    backends: Path
    bin: Path


def assemble(install: TritonInstall) -> Runtime:
    """Make the folder in the cache, or find it there; its name says what it was made of."""
    target = cache_dir() / "runtime" / _digest(install)
    with locked(target):
        if not target.exists():
            with published(target) as folder:
                _copy_backend(install, folder / "backends" / "python")
                _make_environment(folder / "python")
    return Runtime(backends=target / "backends", bin=target / "python" / "bin")


def _digest(install: TritonInstall) -> str:
    sources = [install.stub, *sorted(install.python_backend.glob("*.*"))]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    parts = [stamps, _base_python(), sys.version, _environment_lines()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _copy_backend(install: TritonInstall, folder: Path) -> None:
    shutil.copytree(install.python_backend, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(install.stub, folder / install.stub.name)
    (folder / install.stub.name).chmod(0o755)


def _base_python() -> str:
    """The interpreter itself, behind any virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    beside = Path(sysconfig.get_config_var("BINDIR") or "") / name
    candidates = [Path(sys.base_prefix) / "bin" / name, beside, Path(sys.executable).resolve()]
    return str(next(path for path in candidates if path.exists()))


def _make_environment(folder: Path) -> None:
    python = _base_python()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (folder / "bin").mkdir(parents=True)
    packages.mkdir(parents=True)
    for name in ("python3", version):
        os.symlink(python, folder / "bin" / name)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
    (packages / "heptagram-runtime.pth").write_text("".join(f"{line}\n" for line in _environment_lines()))


def _environment_lines() -> list[str]:
    """Lines of a ``.pth`` file: code is run, anything else is a folder for the import path.

    Site folders are added as such, so that editable installs in them are found too.
    """
    sites = [folder for folder in [*site.getsitepackages(), site.getusersitepackages()] if folder in sys.path]
    chosen = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [
        "import sys; sys.dont_write_bytecode = True",
        *(os.path.abspath(folder) for folder in chosen if folder),
        *(f"import site; site.addsitedir({folder!r})" for folder in sites),
    ]
