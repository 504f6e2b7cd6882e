"""Prometheus numbers of the front; the only user of prometheus_client. Labels come from fixed sets only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from heptagram_gateway.record import Record

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})


class Metrics:
    """One front's numbers; ``render`` writes them as text."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._running = Gauge("heptagram_gateway_running", "Requests at work", registry=self._registry)
        self._requests = Counter(
            "heptagram_gateway_requests",
            "Finished requests; status 499: the client left",
            ("endpoint", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "heptagram_gateway_request_seconds",
            "Duration of a request",
            ("endpoint",),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._first = Histogram(
            "heptagram_gateway_first_event_seconds",
            "Time to the first piece of an answer",
            ("endpoint",),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._tokens = Counter(
            "heptagram_gateway_tokens", "Tokens of finished requests", ("kind",), registry=self._registry
        )
        self._errors = Counter(
            "heptagram_gateway_errors", "Errors told, in streams too", ("code",), registry=self._registry
        )

    def running(self) -> AbstractContextManager[object]:
        """Hold it while a request is at work."""
        return cast(AbstractContextManager[object], self._running.track_inprogress())

    def count(self, record: Record) -> None:
        """Take a finished request."""
        method = record.method if record.method in _METHODS else "other"
        self._requests.labels(record.endpoint, method, str(record.status)).inc()
        self._seconds.labels(record.endpoint).observe(record.elapsed_s)
        if record.first_event_s is not None:
            self._first.labels(record.endpoint).observe(record.first_event_s)
        self._tokens.labels("prompt").inc(record.prompt_tokens)
        self._tokens.labels("completion").inc(record.completion_tokens)
        if record.error is not None:
            self._errors.labels(record.error).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
