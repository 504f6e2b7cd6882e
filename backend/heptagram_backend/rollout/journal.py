"""What was rolled out when, and what was begun and not ended: ``rollout.json`` at the root of the repository."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from heptagram_backend.errors import RolloutError

FILE_NAME: Final = "rollout.json"
FLIPS: Final = ("promote", "rollback")


@dataclass(frozen=True, slots=True)
class Entry:
    """One command on one version; ``at`` in seconds since the epoch, UTC, ``before`` what was current then.

    ``weight`` is the percentage of a ``shift``.
    """

    command: str
    version: int
    at: float
    before: int | None
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Journal:
    """``pending`` was begun and not ended; ``history`` ended, oldest first."""

    pending: Entry | None = None
    history: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, root: Path) -> Journal:
        """Raises RolloutError when the file is broken."""
        path = root / FILE_NAME
        if not path.exists():
            return cls()
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            pending = data["pending"]
            return cls(Entry(**pending) if pending else None, tuple(Entry(**entry) for entry in data["history"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RolloutError(f"{path}: cannot be read ({error}); move it away to start a new one") from error

    def begin(self, root: Path, command: str, version: int, before: int | None, *, weight: int | None = None) -> None:
        replace(self, pending=Entry(command, version, time.time(), before, weight)).write(root)

    def end(self, root: Path) -> None:
        """What is pending is done now."""
        assert self.pending is not None
        replace(self, pending=None, history=(*self.history, replace(self.pending, at=time.time()))).write(root)

    def forget(self, root: Path) -> None:
        """What is pending was undone."""
        replace(self, pending=None).write(root)

    @property
    def last_flip(self) -> Entry | None:
        """The last promotion or rollback that ended."""
        return next((entry for entry in reversed(self.history) if entry.command in FLIPS), None)

    @property
    def rollback_target(self) -> int | None:
        """What the last promotion took the place of; None where it was rolled back already."""
        last = self.last_flip
        return last.before if last is not None and last.command == "promote" else None

    def write(self, root: Path) -> None:
        path = root / FILE_NAME
        beside = path.with_name(f".{FILE_NAME}")
        with open(beside, "w", encoding="utf-8") as handle:
            json.dump(asdict(self), handle, indent=1)
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(path)
