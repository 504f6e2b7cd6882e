"""Spans, or nothing: without an endpoint every call ends in an empty method, and no library is imported.

Each process exports its own spans; that they belong together is in their context, which requests carry along.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol, cast

from heptagram_telemetry.settings import Telemetry, TelemetryError

Attributes = Mapping[str, str | int | float | bool | None]
"""What is ``None`` is left out."""

_NOTHING: Final[Attributes] = {}


class Span(Protocol):
    """A piece of work that has begun. ``traceparent`` is what its own parts are given as their parent."""

    @property
    def traceparent(self) -> str | None: ...

    def part(self, name: str, *, start_ns: int, end_ns: int, attributes: Attributes = _NOTHING) -> None:
        """A part of it that is over; times are of ``time.time_ns``."""

    def end(self, attributes: Attributes = _NOTHING, *, error: str | None = None) -> None:
        """It is over; ``error`` says that it failed, and how. Once."""


class Tracer(Protocol):
    """``enabled``: spans are exported, so that it is of use to gather what they say."""

    enabled: bool

    def begin(self, name: str, parent: str | None, *, serves: bool = False, start_ns: int | None = None) -> Span:
        """A span below ``parent`` (a ``traceparent``), or the first one of a trace; ``serves``: it answers a client."""

    def close(self) -> None:
        """Export what is left; idempotent."""


class _NoSpan:
    traceparent = None

    def part(self, name: str, *, start_ns: int, end_ns: int, attributes: Attributes = _NOTHING) -> None:
        """Nothing is traced."""

    def end(self, attributes: Attributes = _NOTHING, *, error: str | None = None) -> None:
        """Nothing is traced."""


_NO_SPAN: Final = _NoSpan()


class NoTracer:
    enabled = False

    def begin(
        self,
        name: str,  # noqa: ARG002
        parent: str | None,  # noqa: ARG002
        *,
        serves: bool = False,  # noqa: ARG002
        start_ns: int | None = None,  # noqa: ARG002
    ) -> Span:
        return _NO_SPAN

    def close(self) -> None:
        """There is nothing to export."""


def open_tracer(telemetry: Telemetry, service: str) -> Tracer:
    """The tracer of the process that is called ``service`` in its traces.

    Raises:
        TelemetryError: traces are wanted, but the extra ``tracing`` is not installed.
    """
    if not telemetry.otlp_traces_endpoint:
        return NoTracer()
    try:
        otel = import_module("heptagram_telemetry.otel")
    except ImportError as error:
        raise TelemetryError(
            f"--otlp-traces-endpoint needs OpenTelemetry ({error}); pip install 'heptagram[tracing]'"
        ) from error
    return cast(Tracer, otel.OtelTracer(telemetry.otlp_traces_endpoint, service))
