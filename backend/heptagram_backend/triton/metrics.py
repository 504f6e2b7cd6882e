"""The engine's gauges and counters as Triton custom metrics, read at ``/metrics``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.engine_api import EngineSnapshot

_GAUGES: Final[Mapping[str, str]] = {
    "running": "Requests that hold a slot",
    "waiting": "Requests in the queue",
    "slots_used": "Slots of the batch in use",
    "slots_total": "Slots of the batch",
    "blocks_held": "Blocks of the key/value cache that running requests hold",
    "blocks_cached": "Blocks that nobody holds and that a request with the same beginning may still use",
    "blocks_total": "Blocks of the key/value cache",
    "live_matchers": "Grammar matchers that are not closed",
}
_COUNTERS: Final[Mapping[str, str]] = {
    "requests_finished": "Requests that ended with a finish event",
    "requests_failed": "Requests that ended with an error or a failure event",
    "requests_cancelled": "Requests whose client left or that were stopped",
    "invalid_outputs": "Finished calls that did not validate against their schema",
    "prompt_tokens": "Prompt tokens of admitted requests",
    "generated_tokens": "Tokens committed",
    "draft_tokens": "Tokens drafted",
    "accepted_draft_tokens": "Drafted tokens that the target accepted",
    "steps": "K7 steps",
    "preemptions": "Times a running request gave up its blocks and was computed again later",
    "prefix_hit_tokens": "Prompt tokens found in the cache",
    "masked_rows": "Rows verified under a grammar's mask",
    "mask_hits": "Of these, rows whose mask lay on the device already",
    "mask_bytes": "Bytes of masks uploaded to the device",
}


class EngineMetrics:
    """Publishes snapshots. Only what changed is sent: each update costs a message to the server process."""

    def __init__(self, *, model: str, version: str) -> None:
        # subtle: a version that is loaded again overlaps with itself. Two metrics of one name with the same labels are
        # one inside tritonserver (2.51): the first that closes frees it under the other, and corrupts its memory.
        labels = {"model": model, "version": version, "pid": str(os.getpid())}
        # A family must outlive its metrics, so both are kept.
        self._families: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._published: dict[str, int] = {}
        for field, text in _GAUGES.items():
            self._register(field, f"heptagram_{field}", text, pb_utils.MetricFamily.GAUGE, labels)
        for field, text in _COUNTERS.items():
            self._register(field, f"heptagram_{field}_total", text, pb_utils.MetricFamily.COUNTER, labels)

    def publish(self, snapshot: EngineSnapshot) -> None:
        """Bring the server's numbers up to ``snapshot``. One thread calls this."""
        for field in self._metrics:
            value = int(getattr(snapshot, field))
            before = self._published[field]
            if value == before:
                continue
            if field in _GAUGES:
                self._metrics[field].set(value)
            elif value > before:
                self._metrics[field].increment(value - before)
            self._published[field] = value

    def close(self) -> None:
        """Take this version's numbers off the server."""
        self._metrics.clear()
        self._families.clear()

    def _register(self, field: str, name: str, text: str, kind: Any, labels: Mapping[str, str]) -> None:
        family = pb_utils.MetricFamily(name=name, description=text, kind=kind)
        self._families[field] = family
        self._metrics[field] = family.Metric(labels=dict(labels))
        self._published[field] = 0
