"""Shared-memory segments of one server, and those that killed servers left behind.

The Python backend makes its segments under a prefix that we choose. Beside them lies an empty file that the launcher,
the server and the stubs hold locked; the kernel frees the lock when the last of them has ended, however it ended. (A
process number says less: it is used again, and means nothing in another container that shares ``/dev/shm``.)
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PREFIX = re.compile(r"heptagram-(?P<launcher>\d+)-[0-9a-f]{8}-")
_LOCK = "lock"


class Segments:
    """``prefix`` is for the server's command line, ``lock`` a descriptor that it must inherit."""

    def __init__(self) -> None:
        self.prefix = f"heptagram-{os.getpid()}-{secrets.token_hex(4)}-"
        self.lock = os.open(SHARED_MEMORY / f"{self.prefix}{_LOCK}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def keep(self, name: str, text: str) -> None:
        """Write a file beside them that only this user can read, and that goes when they go; see :func:`kept_files`."""
        path = SHARED_MEMORY / f"{self.prefix}{name}"
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)

    def guard(self) -> None:
        """Let nobody else read them: requests go through them, and Triton makes them readable whatever the umask."""
        for path in SHARED_MEMORY.glob(f"{self.prefix}*"):
            with suppress(FileNotFoundError):  # a model is unloaded just now
                if path.stat().st_mode & 0o077:
                    path.chmod(0o600)

    def remove(self) -> None:
        """Remove them once nothing uses them any more; idempotent."""
        if self.lock >= 0:
            _remove(self.prefix)
            os.close(self.lock)
            self.lock = -1


def kept_files(name: str) -> list[str]:
    """What the servers of this user have kept under ``name``, the newest first."""
    found = []
    for path in SHARED_MEMORY.glob(f"heptagram-*-{glob.escape(name)}"):
        if PREFIX.fullmatch(path.name.removesuffix(name)):
            with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
                status = os.fstat(file.fileno())
                if status.st_uid == os.getuid():
                    found.append((status.st_mtime_ns, file.read()))
    return [text for _, text in sorted(found, reverse=True)]


def remove_abandoned_segments() -> int:
    """Remove the segments of servers of which no process lives; returns how many there were."""
    removed = 0
    for path in SHARED_MEMORY.glob(f"heptagram-*-{_LOCK}"):
        prefix = path.name.removesuffix(_LOCK)
        if PREFIX.fullmatch(prefix):
            removed += _remove_unless_locked(path, prefix)
    return removed


def _remove_unless_locked(lock: Path, prefix: str) -> int:
    try:
        with open(lock, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _remove(prefix)
    except OSError:  # in use, another user's, or another start removes it now
        return 0


def _remove(prefix: str) -> int:
    """The lock goes last, so that a removal that was cut short is taken up again."""
    segments = [path for path in SHARED_MEMORY.glob(f"{prefix}*") if path.name != f"{prefix}{_LOCK}"]
    for path in [*segments, SHARED_MEMORY / f"{prefix}{_LOCK}"]:
        path.unlink(missing_ok=True)
    return len(segments)
