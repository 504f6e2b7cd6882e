"""The outermost layer: the request id goes in and out, every request is counted and written down once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heptagram_gateway.metrics import Metrics
from heptagram_gateway.record import GONE, Record, begin
from heptagram_telemetry.trace_context import TraceContext, traceparent
from heptagram_telemetry.tracing import Attributes, NoTracer, Span, Tracer

Write = Callable[[Record], None]
OFF: Final = "off"
_UNTRACED: Final = NoTracer()


class Observe:
    """Wraps ``app``; ``write`` takes the record of each finished request. Paths in ``traced`` have spans."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, write: Write, tracer: Tracer, traced: Collection[str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._write = write
        self._tracer = tracer
        self._traced = traced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        record = begin(scope)
        span = self._begin_span(scope)

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", record.id.encode())]}
            await send(message)

        try:
            with self._metrics.running():
                await self._app(scope, receive, send_named)
        finally:
            record.status = record.status or GONE
            self._metrics.count(record)
            self._write(record)
            span.end(_attributes(record), error=record.error)

    def _begin_span(self, scope: Scope) -> Span:
        """The context of a client that traces is handed on in any case: the models may be traced alone."""
        header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"").decode("latin-1")
        parent = header if TraceContext.parse(header) else None
        tracer = self._tracer if scope["path"] in self._traced else _UNTRACED
        span = tracer.begin(f"{scope['method']} {scope['path']}", parent, serves=True)
        traceparent.set(span.traceparent or parent)
        return span


class AccessLog:
    """One JSON line a request, to ``out``."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, record: Record) -> None:
        self._out.write(json.dumps(line_of(record), separators=(",", ":")) + "\n")
        self._out.flush()


def open_log(where: str) -> tuple[Write, AbstractContextManager[Any]]:
    """The log at ``-`` (stdout), ``off`` or a file to append to, and what closes it.

    Raises:
        OSError: the file cannot be opened.
    """
    if where == OFF:
        return _nothing, nullcontext()
    if where == "-":
        return AccessLog(sys.stdout), nullcontext()
    file = Path(where).open("a", encoding="utf-8")  # noqa: SIM115 (the caller closes it)
    return AccessLog(file), file


def line_of(record: Record) -> dict[str, Any]:
    """The line's object; what does not apply is left out."""
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": record.id,
        "client": record.client,
        "method": record.method,
        "endpoint": record.endpoint,
        "status": record.status,
        "seconds": round(record.elapsed_s, 4),
        "model": record.model,
        "stream": record.stream or None,
        "first_event_s": None if record.first_event_s is None else round(record.first_event_s, 4),
        "prompt_tokens": record.prompt_tokens or None,
        "completion_tokens": record.completion_tokens or None,
        "finish_reason": record.finish_reason,
        "error": record.error,
    }
    return {name: value for name, value in line.items() if value is not None}


def _attributes(record: Record) -> Attributes:
    """By OpenTelemetry's conventions where they have a name."""
    return {
        "request_id": record.id,
        "http.response.status_code": record.status,
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "finish_reason": record.finish_reason,
        "first_event_s": record.first_event_s,
        "stream": record.stream,
    }


def _nothing(record: Record) -> None:
    """The log that is off."""
