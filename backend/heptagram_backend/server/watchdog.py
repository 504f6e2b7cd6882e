"""Brings back models whose process has died.

Triton 2.51 goes on saying that such a model is ready, lets its requests hang and takes a load for done; unload and load
repair it, and the ensembles over it follow. Requests that were in the dead process never end: their clients leave by
their idle timeout, and an ordered stop of the server waits for them in vain.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.control import ControlError
from heptagram_backend.server.stubs import Stub

# Pauses before the first, second, ... load of a model within the window; one more death and it is given up.
_PAUSES_S = (0.0, 1.0, 4.0, 16.0)
_WINDOW_S = 600.0


class Control(Protocol):
    """See :class:`heptagram_backend.server.control.ModelControl`."""

    def ready_versions(self, model: str) -> set[str]: ...

    def unload(self, model: str) -> None: ...

    def load(self, model: str) -> None: ...


class Watched(Protocol):
    """See :class:`heptagram_backend.server.stubs.Stubs`."""

    def ended(self) -> list[Stub]: ...

    def living(self, model: str, version: str) -> bool: ...

    def forget(self, stub: Stub) -> None: ...

    def search(self) -> None: ...


class Watchdog:
    """Call :meth:`look` a few times a second; it blocks while a model loads. ``report`` is told in whole sentences."""

    def __init__(
        self,
        stubs: Watched,
        control: Control,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stubs = stubs
        self._control = control
        self._report = report
        self._clock = clock
        self._suspects: set[int] = set()
        self._deaths: dict[str, list[float]] = defaultdict(list)
        self._down: dict[str, _Down] = {}
        self.deaths = 0

    def look(self) -> None:
        """See what has ended, and load what is due.

        Raises:
            LaunchError: a model died too often; the server is of no use any more.
        """
        for stub in self._stubs.ended():
            if stub.process.pid not in self._suspects:  # an unload in progress reaps it before the next look
                self._suspects.add(stub.process.pid)
                continue
            self._suspects.discard(stub.process.pid)
            self._stubs.forget(stub)
            if stub.model not in self._down and self._is_broken(stub):
                self._take_down(stub)
        for model, down in list(self._down.items()):
            if self._clock() >= down.due:
                self._bring_back(model, down)

    def _is_broken(self, stub: Stub) -> bool:
        """Whether Triton still takes the version for ready though this process of it has died."""
        try:
            ready = stub.version in self._control.ready_versions(stub.model)
        except ControlError:  # the server itself is ending
            return False
        return ready and (stub.is_zombie or not self._stubs.living(stub.model, stub.version))

    def _take_down(self, stub: Stub) -> None:
        """Unload at once, so that requests are refused from now on instead of hanging."""
        self.deaths += 1
        self._report(
            f"the process {stub.process.pid} of {stub.model} (version {stub.version}) died; its requests are lost"
        )
        self._down[stub.model] = _Down(died=self._clock(), due=self._next_load(stub.model))
        try:
            self._control.unload(stub.model)
        except ControlError as error:
            self._report(f"{stub.model} cannot be unloaded: {error}")

    def _next_load(self, model: str) -> float:
        """When to load ``model``, which has just failed once more."""
        now = self._clock()
        recent = [moment for moment in self._deaths[model] if now - moment < _WINDOW_S]
        if len(recent) == len(_PAUSES_S):
            raise LaunchError(
                f"{model} failed {len(recent) + 1} times within {_WINDOW_S / 60:.0f} minutes and is given up; what its "
                "process said is in the log. Without a word there, look for the kernel's out-of-memory killer (dmesg)"
            )
        self._deaths[model] = [*recent, now]
        pause = _PAUSES_S[len(recent)]
        if pause:
            self._report(f"{model} failed {len(recent) + 1} times within a short time; loading it in {pause:.0f} s")
        return now + pause

    def _bring_back(self, model: str, down: _Down) -> None:
        try:
            self._control.load(model)
        except ControlError as error:
            self._report(f"{model} cannot be loaded: {error}")
            down.due = self._next_load(model)
            return
        del self._down[model]
        self._stubs.search()
        self._report(f"{model} is ready again, {self._clock() - down.died:.1f} s after its process was found dead")


class _Down:
    """A model that is unloaded and will be loaded at ``due``."""

    def __init__(self, *, died: float, due: float) -> None:
        self.died = died
        self.due = due
