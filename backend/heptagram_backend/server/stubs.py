"""The processes in which Python models run: which there are, and which have ended.

A stub that Triton ends by itself is reaped at once. One that died stays a zombie, because Triton 2.51 waits for it only
when it unloads the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_NAME = "triton_python_backend_stub"
# A whole look reads a file for each process of the machine; the state of a known stub is one file.
_SEARCH_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Stub:
    """One instance of one version of a model of a repository; ``model`` is empty where it was dead when found."""

    process: psutil.Process
    model: str
    version: str
    repository: Path | None = None

    @property
    def alive(self) -> bool:
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    @property
    def is_zombie(self) -> bool:
        try:
            return bool(self.process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


class Stubs:
    """The stubs of one server, found by their command lines."""

    def __init__(self, server_pid: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server_pid
        self._clock = clock
        self._known: dict[int, Stub] = {}
        self._forgotten: set[psutil.Process] = set()
        self._search_at = 0.0

    def ended(self) -> list[Stub]:
        """Those of the known stubs that have ended; each is given until :meth:`forget`."""
        if self._clock() >= self._search_at:
            self.search()
        return [stub for stub in self._known.values() if not stub.alive]

    def living(self, model: str, version: str) -> bool:
        """Whether any instance of this version lives."""
        return any(stub.alive for stub in self._known.values() if (stub.model, stub.version) == (model, version))

    def forget(self, stub: Stub) -> None:
        self._known.pop(stub.process.pid, None)
        self._forgotten.add(stub.process)

    def search(self) -> None:
        """Look for new ones among the server's children."""
        self._search_at = self._clock() + _SEARCH_EVERY_S
        try:
            children = psutil.Process(self._server).children()
        except psutil.NoSuchProcess:
            return
        self._forgotten &= set(children)
        for child in children:
            if child.pid not in self._known and child not in self._forgotten and (stub := described(child)) is not None:
                self._known[child.pid] = stub


def described(process: psutil.Process) -> Stub | None:
    """Arguments of a stub: the path of its ``model.py`` in a version folder, then the prefix of its segments.

    A zombie has none, and of its name the 15 characters that Linux keeps.
    """
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return Stub(process, model="", version="") if process.name() == _NAME[:15] else None
        arguments = process.cmdline()
    except psutil.Error:  # it ends just now
        return None
    if len(arguments) < 2 or Path(arguments[0]).name != _NAME:
        return None
    version = Path(arguments[1]).parent
    return Stub(process, version.parent.name, version.name, version.parent.parent)
