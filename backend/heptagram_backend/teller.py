"""What a client is told: text is read and parsed, events are made and sent. No torch.

A fault of a parser or a sink stays with its request: on the way it becomes the sequence's ``fault``, which the engine
ends it with; at the end it is the end.
"""

from __future__ import annotations

import logging
import time

from heptagram_backend.errors import HeptagramError, contain
from heptagram_backend.sequence import Sequence
from heptagram_wire.events import Event, Failure, Finish, FinishReason, Ping, Start

PING_SECONDS = 0.5

_log = logging.getLogger(__name__)


class Teller:
    """Sends to the sinks; nothing raises. Whoever calls owns the output, see :mod:`heptagram_backend.outbox`.

    The last of each request is told by :meth:`finish` or :meth:`fail`, once its slot and its matcher are free.
    """

    def __init__(self, version: str) -> None:
        self._version = version

    def start(self, sequence: Sequence) -> None:
        self._on_the_way(sequence, [self._start(sequence)])

    def ping(self, sequence: Sequence) -> None:
        self._on_the_way(sequence, [Ping()])

    def silent(self, sequence: Sequence, now: float) -> bool:
        """Its client has heard nothing for so long that it is to be pinged."""
        return sequence.started and now - sequence.last_send >= PING_SECONDS

    def progress(self, sequence: Sequence) -> None:
        """What the last step committed."""
        try:
            sequence.read()
        except Exception as error:
            sequence.fault = contain(error, f"the text of {sequence.name}")
        else:
            self._on_the_way(sequence, sequence.emitter.take())

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """The rest and `finish`; a failure if the rest is not sound."""
        try:
            sequence.read()
            reason = sequence.emitter.finish(reason)
        except Exception as error:  # a parser's fault at the end is as much this request's alone as one before
            self._failed(sequence, contain(error, f"the end of {sequence.name}"))
            return
        start = [] if sequence.started else [self._start(sequence)]
        stats = sequence.stats
        last = Finish(reason, stats.usage(sequence.prompt_tokens), stats.wire())
        self._last(sequence, [*start, *sequence.emitter.take(), last])

    def fail(self, sequence: Sequence, error: HeptagramError) -> None:
        """What is sound of the rest, and a failure; an error instead of everything where `start` was not sent."""
        try:
            sequence.read()
        except Exception as earlier:  # the text before the fault was not sound itself
            error = contain(earlier, f"the text of {sequence.name}")
        self._failed(sequence, error)

    def _failed(self, sequence: Sequence, error: HeptagramError) -> None:
        if sequence.started:
            wire = error.wire
            failure = Failure(code=wire.code, message=wire.message, param=wire.param)
            self._last(sequence, [*sequence.emitter.take(), failure])
            return
        try:
            sequence.sink.fail(error)
        except Exception:
            _log.exception("telling %s that it failed", sequence.name)

    def _start(self, sequence: Sequence) -> Start:
        sequence.started = True
        request = sequence.request
        return Start(sequence.id, request.model, self._version, sequence.prompt_tokens, request.max_tokens)

    def _on_the_way(self, sequence: Sequence, events: list[Event]) -> None:
        if not events:
            return
        sequence.last_send = time.monotonic()
        try:
            sequence.sink.send(events, final=False)
        except Exception as error:
            sequence.fault = contain(error, f"sending to {sequence.name}")

    @staticmethod
    def _last(sequence: Sequence, events: list[Event]) -> None:
        try:
            sequence.sink.send(events, final=True)
        except Exception:
            _log.exception("the last of %s", sequence.name)
