"""Counts how requests end, by the last that is told of each. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from heptagram_backend.engine_api import CancelCause, Sink
from heptagram_backend.errors import HeptagramError
from heptagram_backend.stats import EngineStats
from heptagram_wire import errors as codes
from heptagram_wire.events import Event, Failure, Finish


class CountedSink:
    """In front of a request's sink; see :class:`heptagram_backend.engine_api.Sink`. Counted is before it is told.

    ``cause`` is who had it cancelled; where nobody did, it was the end of a drain.
    """

    def __init__(self, sink: Sink, stats: EngineStats) -> None:
        self._sink = sink
        self._stats = stats
        self.cause: CancelCause = "drain"

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        match events[-1] if final else None:
            case Finish(reason="cancelled"):
                self._stats.cancelled[self.cause] += 1
            case Finish(reason="deadline"):
                self._stats.cancelled["deadline"] += 1
            case Finish(reason=reason):
                self._stats.finished[reason] += 1
            case Failure(code=code):
                self._failed(code)
        self._sink.send(events, final=final)

    def fail(self, error: HeptagramError) -> None:
        self._failed(error.wire.code)
        self._sink.fail(error)

    def _failed(self, code: str) -> None:
        self._stats.failed[code] += 1
        self._stats.invalid_outputs += code == codes.INVALID_OUTPUT
