"""The cache folder: ``HEPTAGRAM_CACHE``, by default ``~/.cache/heptagram``. Everything in it can be made again.

A folder appears in it whole or not at all: it is built beside its place and renamed, under a lock, so that two starts
at once neither see half a folder nor build it twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "HEPTAGRAM_CACHE"


def cache_dir() -> Path:
    """The absolute path of the cache folder, which need not exist yet."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "heptagram"


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of ``target``; whoever else wants it waits. Freed by the kernel if the holder dies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def published(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; without an exception it then takes the place of ``target``, else it vanishes.

    The caller holds the lock of ``target``, so what a killed process left half made is removed here.
    """
    for left in target.parent.glob(f".{target.name}.*/"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        filled = work / "new"
        filled.mkdir()
        yield filled
        if target.exists():
            target.rename(work / "old")
        filled.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
