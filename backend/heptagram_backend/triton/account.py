"""What is told of a request when it has ended: a log line, and its spans. Never any of its content."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.engine_api import Sink
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_telemetry.trace_context import TRACEPARENT
from heptagram_telemetry.tracing import Tracer
from heptagram_wire.events import Event, Failure, Finish, Start

_log = logging.getLogger(__name__)
_NS: Final = 1_000_000_000

Told = str | int | float | None


@dataclass(frozen=True, slots=True)
class Part:
    """A span of a request; times are of ``time.time_ns``."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Told]

    @property
    def seconds(self) -> float:
        return round((self.end_ns - self.start_ns) / _NS, 4)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks: the request's id as its client knows it, empty where it has none, and its place in a trace."""

    request_id: str = ""
    traceparent: str | None = None

    @classmethod
    def of(cls, request: Any, tracer: Tracer) -> Origin:
        """Of a request of Triton's; parameters are looked at only for traces."""
        if not tracer.enabled:
            return cls(request.request_id())
        parent = json.loads(request.parameters()).get(TRACEPARENT)
        return cls(request.request_id(), parent if isinstance(parent, str) else None)


def accounted(sink: Sink, work: GenerationRequest, origin: Origin, tracer: Tracer) -> Sink:
    """``sink``, with an account in front of it where anybody would read that."""
    if not tracer.enabled and not _log.isEnabledFor(logging.INFO):
        return sink
    return AccountedSink(sink, work, origin, tracer)


class AccountedSink:
    """See :class:`heptagram_backend.engine_api.Sink`. All spans are made at the end, of the times that it tells."""

    def __init__(self, sink: Sink, work: GenerationRequest, origin: Origin, tracer: Tracer) -> None:
        self._sink = sink
        self._origin = origin
        self._tracer = tracer
        self._constrained = work.constraint is not None
        self._began = time.time_ns()
        self._told: dict[str, Told] = {"model": work.model, "prompt_tokens": len(work.prompt_ids)}

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        match events[0] if events else None:
            case Start() as start:
                self._told |= {"id": start.id, "version": start.version}
        self._sink.send(events, final=final)
        match events[-1] if final else None:
            case Finish() as finish:
                self._finished(finish)
            case Failure(code=code):
                self._over({}, error=code)

    def fail(self, error: HeptagramError) -> None:
        self._sink.fail(error)
        self._over({}, error=error.wire.code)

    def _finished(self, finish: Finish) -> None:
        stats, drafts = finish.stats, finish.stats.speculative_decoding
        tokens: dict[str, Told] = {"tokens": finish.usage.completion_tokens}
        counts: dict[str, Told] = {
            "steps": stats.steps,
            "drafted": drafts.num_draft_tokens,
            "accepted": drafts.num_accepted_draft_tokens,
            "forced": stats.forced,
            "masked_rows": stats.masked_rows,
        }
        now = time.time_ns()
        # The engine's times are of another clock, and end a moment before this one.
        admitted = max(self._began, now - round((stats.decode_s + stats.prefill_s) * _NS))
        decoding = max(admitted, now - round(stats.decode_s * _NS))
        parts = [
            Part("queue", self._began, admitted, {}),
            Part("prefill", admitted, decoding, {"preemptions": stats.preemptions}),
            Part("decode", decoding, now, tokens | counts),
        ]
        if self._constrained:
            parts.insert(1, Part("compile", self._began, self._began + round(stats.compile_s * _NS), {}))
        self._told |= {"finish_reason": finish.reason, **tokens, **counts}
        self._over({f"{part.name}_s": part.seconds for part in parts}, parts)

    def _over(self, times: Mapping[str, Told], parts: Sequence[Part] = (), error: str | None = None) -> None:
        told = {"request_id": self._origin.request_id, **self._told, "error": error}
        span = self._tracer.begin("generate", self._origin.traceparent, start_ns=self._began)
        for part in parts:
            span.part(part.name, start_ns=part.start_ns, end_ns=part.end_ns, attributes=part.attributes)
        span.end(told, error=error)
        seconds = round((time.time_ns() - self._began) / _NS, 4)
        _log.info("ended", extra={"fields": {**told, "seconds": seconds, **times}})
