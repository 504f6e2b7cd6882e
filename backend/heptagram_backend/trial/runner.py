"""Tries costly constraints in a child that then waits for the next one, or is replaced if it had to be killed."""

from __future__ import annotations

from threading import Lock
from typing import Final

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import EngineError, OverloadedError
from heptagram_backend.trial.estimate import ADVICE
from heptagram_backend.trial.process import Child, ChildEndedError
from heptagram_backend.trial.setup import Setup
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError

_PATIENCE: Final = 10  # wall time per processor time, on a machine that does other things
_LEAST_PATIENCE_S: Final = 30.0


class Trial:
    """One child at a time, started when it is first needed. Thread-safe; only ``close`` does not wait its turn."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._turn = Lock()
        self._state = Lock()
        self._child: Child | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the child, where there is one."""
        child = self._child
        return child.pid if child is not None and child.alive else None

    def refusal(self, spec: ConstraintSpec, worst: str) -> WireError | None:
        """Compile ``spec`` in the child.

        Args:
            spec: what is tried.
            worst: what of it is the most costly, a key of :data:`~heptagram_backend.trial.estimate.ADVICE`.

        Returns:
            Why it is refused; ``None`` where it compiled within the limits.

        Raises:
            OverloadedError: this version ends, or the machine had no processor time for it.
            EngineError: there is no child to try it in.
        """
        with self._turn:
            child = self._open()
            try:
                child.begin(self._setup)
                child.wait_ready()
                answer = child.compile(spec, max(_LEAST_PATIENCE_S, self._setup.seconds * _PATIENCE))
            except EngineError:
                self._leave(child)
                if self._closed:
                    raise _ending() from None
                raise
            except ChildEndedError as end:
                self._leave(child)
                refusal = self._judged(end, worst)
                self._replace()
                return refusal
        return WireError(**answer) if answer else None

    def close(self) -> None:
        """End the child, also in the middle of a compile; idempotent."""
        with self._state:
            self._closed = True
            if self._child is not None:
                self._child.kill()
        with self._turn, self._state:
            if self._child is not None:
                self._child.close()
                self._child = None

    def _open(self) -> Child:
        with self._state:
            if self._closed:
                raise _ending()
            if self._child is not None and not self._child.alive:
                self._child.close()
                self._child = None
            if self._child is None:
                self._child = Child()
            return self._child

    def _leave(self, child: Child) -> None:
        child.close()
        with self._state:
            self._child = None

    def _replace(self) -> None:
        """Start the next one now, so that whoever needs it need not wait for that."""
        with self._state:
            self._child = None if self._closed else Child()
            started = self._child
        if started is not None:
            started.begin(self._setup)

    def _judged(self, end: ChildEndedError, worst: str) -> WireError:
        if self._closed:
            raise _ending()
        if end.status is None:
            raise OverloadedError("the machine is too busy to try this costly constraint; send it again later")
        if end.out_of_time:
            found = f"takes more than {self._setup.seconds:g} s of processor time"
        elif end.out_of_memory:
            found = f"takes more than {self._setup.memory >> 20} MiB of memory"
        else:
            found = "ends the compiler"
        message = f"compiling the constraint {found}; costly in it is above all: {worst}; {ADVICE[worst]}"
        return WireError(codes.GRAMMAR_TOO_COSTLY, message)


def _ending() -> OverloadedError:
    return OverloadedError("this version is shutting down; send the request again", code=codes.DRAINING)
