"""Our numbers as Triton custom metrics, read at ``/metrics``."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.engine_api import EngineSnapshot
from heptagram_backend.metric_table import PREFIX, Sample, distributions, numbers
from heptagram_wire.errors import BUSY_CODES, INTERNAL

_log = logging.getLogger(__name__)
_DISTRIBUTIONS_EVERY_S: Final = 1.0


class _Published:
    """What the server has of one model version. Only what changed is sent: each update is a message to its process."""

    def __init__(self, *, model: str, version: str) -> None:
        # subtle: a version that is loaded again overlaps with itself. Two metrics of one name with the same labels are
        # one inside tritonserver (2.51): the first that closes frees it under the other, and corrupts its memory.
        self._labels = {"model": model, "version": version, "pid": str(os.getpid())}
        # A family must outlive its metrics, so both are kept.
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, str], Any] = {}
        self._values: dict[tuple[str, str], float] = {}

    def update(self, samples: Iterable[Sample]) -> None:
        """Bring the server's numbers up to ``samples``; those that it does not know yet are made known."""
        for sample in samples:
            key = (sample.name, sample.label[1] if sample.label else "")
            metric = self._metrics.get(key) or self._register(key, sample)
            before = self._values[key]
            if sample.value == before:
                continue
            if sample.kind == "GAUGE":
                metric.set(sample.value)
            elif sample.value > before:
                metric.increment(sample.value - before)
            self._values[key] = sample.value

    def close(self) -> None:
        """Take them off the server."""
        self._metrics.clear()
        self._families.clear()

    def _register(self, key: tuple[str, str], sample: Sample) -> Any:
        family = self._families.get(sample.name)
        if family is None:
            kind = getattr(pb_utils.MetricFamily, sample.kind)
            family = pb_utils.MetricFamily(name=sample.name, description=sample.text, kind=kind)
            self._families[sample.name] = family
        labels = self._labels | ({sample.label[0]: sample.label[1]} if sample.label else {})
        self._metrics[key] = family.Metric(labels=labels)
        self._values[key] = 0.0
        return self._metrics[key]


class EngineMetrics:
    """Publishes snapshots. One thread calls this.

    Histograms are written as what they are in Prometheus' text, numbers with the label ``le``: Triton's own kind takes
    one observation a message (28 µs), and there are several in a step of each answer. They are sent once a second.
    """

    def __init__(self, *, model: str, version: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._published = _Published(model=model, version=version)
        self._clock = clock
        self._due = 0.0

    def publish(self, snapshot: EngineSnapshot) -> None:
        """Bring the server's numbers up to ``snapshot``."""
        self._published.update(numbers(snapshot))
        now = self._clock()
        if now >= self._due:
            self._due = now + _DISTRIBUTIONS_EVERY_S
            self._published.update(distributions(snapshot))

    def close(self) -> None:
        """Take this version's numbers off the server."""
        self._published.close()


class Rejections:
    """Counts the requests that a step refused, by code. Any thread may count; only a refusal costs a message."""

    def __init__(self, *, model: str, version: str) -> None:
        self._published = _Published(model=model, version=version)
        self._counts = dict.fromkeys((*sorted(BUSY_CODES), INTERNAL), 0)
        self._lock = threading.Lock()
        self._published.update(map(self._sample, self._counts))  # so that their first time is seen as a growth

    def count(self, code: str) -> None:
        with self._lock:
            self._counts[code] = self._counts.get(code, 0) + 1
            try:
                self._published.update([self._sample(code)])
            except Exception as error:  # whoever was refused must be told so all the same
                _log.warning("a refusal could not be counted: %s", error)

    def close(self) -> None:
        with self._lock:
            self._published.close()

    def _sample(self, code: str) -> Sample:
        text = "Requests refused before they were taken in"
        return Sample(f"{PREFIX}requests_rejected_total", text, "COUNTER", self._counts[code], ("code", code))
