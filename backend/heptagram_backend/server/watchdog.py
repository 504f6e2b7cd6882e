"""Brings back models whose process has died.

Triton 2.51 goes on saying that such a model is ready, lets its requests hang and takes a load for done; unload and load
repair it, and the ensembles over it follow. Requests that were in the dead process never end: their clients leave by
their idle timeout, and an ordered stop of the server waits for them in vain.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Protocol

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.control import ControlError
from heptagram_backend.server.stubs import Stub

# Pauses before the first, second, ... load of a model within the window; one more death and it is given up.
_PAUSES_S = (0.0, 1.0, 4.0, 16.0)
_WINDOW_S = 600.0
# Triton looks after a process that loads each second. One that ends before it has said that it lives is overlooked.
_OVERLOOKED_S = 10.0


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
    """Call :meth:`look` a few times a second. ``report`` is told in whole sentences; models load in ``pool``."""

    def __init__(
        self,
        stubs: Watched,
        control: Control,
        *,
        report: Callable[[str], object],
        pool: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stubs = stubs
        self._control = control
        self._report = report
        self._clock = clock
        self._pool = pool or ThreadPoolExecutor(thread_name_prefix="load")
        self._suspects: dict[int, float] = {}
        self._deaths: dict[str, list[float]] = defaultdict(list)
        self._down: dict[str, _Down] = {}
        self.deaths = 0

    def look_at_start(self) -> None:
        """See whether one has ended that Triton still waits for. Call this while the server loads its first models.

        Raises:
            LaunchError: one has; the server would wait for ever.
        """
        for stub in self._stubs.ended():
            if self._is_overlooked(stub):
                raise LaunchError(f"{_died(stub)} while it was loading, and Triton waits for it for ever")

    def look(self) -> None:
        """See what has ended, and load what is due.

        Raises:
            LaunchError: a model died too often, or so that Triton cannot load it; the server is of no use any more.
        """
        for stub in self._stubs.ended():
            if stub.process.pid not in self._suspects:  # an unload in progress reaps it before the next look
                self._suspects[stub.process.pid] = self._clock()
            elif stub.model not in self._down and self._is_broken(stub):
                self._forget(stub)
                self._take_down(stub)
            elif self._is_overlooked(stub):
                self._forget(stub)
                self._give_up(stub)
        for model, down in list(self._down.items()):
            if down.load is None and self._clock() >= down.due:
                down.load = self._pool.submit(self._control.load, model)
            if down.load is not None and down.load.done():
                self._take_up(model, down)

    def _is_overlooked(self, stub: Stub) -> bool:
        """Whether Triton has let a dead process lie that it should have waited for; what it has not is forgotten."""
        if not stub.is_zombie:
            self._forget(stub)
            return False
        return self._clock() - self._suspects.setdefault(stub.process.pid, self._clock()) >= _OVERLOOKED_S

    def _forget(self, stub: Stub) -> None:
        self._suspects.pop(stub.process.pid, None)
        self._stubs.forget(stub)

    def _give_up(self, stub: Stub) -> None:
        if stub.model in self._down or (self._down and not stub.model):
            raise LaunchError(f"{_died(stub)} while it was loading, and Triton waits for it for ever")
        self._report(
            f"{_died(stub)} while it was loaded or unloaded; Triton does not notice, so that never ends. What is ready "
            "serves on; a restart of the server clears it"
        )

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
        self._report(f"{_died(stub)}; its requests are lost")
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

    def _take_up(self, model: str, down: _Down) -> None:
        """See how its load ended."""
        assert down.load is not None
        try:
            down.load.result()
        except ControlError as error:
            self._report(f"{model} cannot be loaded: {error}")
            down.load, down.due = None, self._next_load(model)
            return
        del self._down[model]
        self._stubs.search()
        self._report(f"{model} is ready again, {self._clock() - down.died:.1f} s after its process was found dead")


class _Down:
    """A model that is unloaded, and will be loaded at ``due`` or is being loaded."""

    def __init__(self, *, died: float, due: float) -> None:
        self.died = died
        self.due = due
        self.load: Future[None] | None = None


def _died(stub: Stub) -> str:
    whose = f"{stub.model} (version {stub.version})" if stub.model else "a model"
    return f"the process {stub.process.pid} of {whose} died"
