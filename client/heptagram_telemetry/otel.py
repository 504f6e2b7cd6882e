"""Spans through OpenTelemetry's SDK; the only user of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from heptagram_telemetry.trace_context import TraceContext
from heptagram_telemetry.tracing import Attributes

_NOTHING: Final[Attributes] = {}


class OtelTracer:
    """Exports in the background, to a collector or a file. Whether a trace is sampled is its beginner's to say."""

    enabled = True

    def __init__(self, endpoint: str, service: str) -> None:
        # No atexit hook: the owner closes it, while the network is still there.
        self._provider = TracerProvider(resource=Resource({SERVICE_NAME: service}), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_exporter(endpoint)))
        self._tracer = self._provider.get_tracer("heptagram")

    def begin(self, name: str, parent: str | None, *, serves: bool = False, start_ns: int | None = None) -> OtelSpan:
        kind = SpanKind.SERVER if serves else SpanKind.INTERNAL
        return OtelSpan(self._tracer, self._tracer.start_span(name, _context(parent), kind, start_time=start_ns))

    def close(self) -> None:
        self._provider.shutdown()


class OtelSpan:
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        sampled = bool(context.trace_flags & TraceFlags.SAMPLED)
        return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", sampled).header

    def part(self, name: str, *, start_ns: int, end_ns: int, attributes: Attributes = _NOTHING) -> None:
        within = set_span_in_context(self._span, Context())
        part = self._tracer.start_span(name, within, start_time=start_ns, attributes=_given(attributes))
        part.end(end_ns)

    def end(self, attributes: Attributes = _NOTHING, *, error: str | None = None) -> None:
        self._span.set_attributes(_given(attributes))
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


def _given(attributes: Attributes) -> dict[str, str | int | float | bool]:
    return {name: value for name, value in attributes.items() if value is not None}


def _context(parent: str | None) -> Context:
    """Explicit, empty where there is no parent: what a library keeps in the current context is not ours."""
    found = TraceContext.parse(parent)
    if found is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if found.sampled else TraceFlags.DEFAULT)
    context = SpanContext(int(found.trace_id, 16), int(found.span_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(context), Context())


class _FileExporter(ConsoleSpanExporter):
    """A line of JSON a span."""

    def __init__(self, path: Path) -> None:
        super().__init__(out=path.open("a", encoding="utf-8"), formatter=lambda span: f"{span.to_json(indent=None)}\n")

    def shutdown(self) -> None:
        self.out.close()


def _exporter(endpoint: str) -> SpanExporter:
    parts = urlsplit(endpoint)
    return _FileExporter(Path(parts.path)) if parts.scheme == "file" else OTLPSpanExporter(endpoint=endpoint)
