"""Snapshots become gauges, counters and histograms; only changes are sent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from heptagram_backend.engine_api import EngineSnapshot
from heptagram_backend.histogram import Distribution, Histogram
from heptagram_backend.measures import Measures
from heptagram_backend.metric_table import COUNTERS, GAUGES, HISTOGRAMS
from heptagram_backend.triton.metrics import EngineMetrics, Rejections
from tests.triton.fake_pb_utils import MetricFamily

_LABELS = {"model": "generate", "version": "1", "pid": str(os.getpid())}
_MAPPINGS = ("finished", "failed", "cancelled", "accepted_by_place", "cut_tokens", "distributions")
_COUNTS: dict[str, Any] = {field.name: 0 for field in fields(EngineSnapshot) if field.name not in _MAPPINGS}
_ZERO = EngineSnapshot(**_COUNTS)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Iterator[EngineMetrics]:
    MetricFamily.made.clear()
    metrics = EngineMetrics(model="generate", version="1", clock=clock)
    yield metrics
    metrics.close()


def value(name: str) -> float:
    return MetricFamily.made[f"heptagram_{name}"].value


def test_every_number_of_a_snapshot_is_public() -> None:
    told = {metric.field for metric in (*GAUGES, *COUNTERS)} | {"distributions"}
    assert {field.name for field in fields(EngineSnapshot)} <= told
    measured = {*Measures().take(), "compile"}
    assert measured == {metric.field for metric in HISTOGRAMS}


def test_gauges_are_set_and_counters_grow_by_the_difference(metrics: EngineMetrics) -> None:
    metrics.publish(replace(_ZERO, running=3, generated_tokens=10))
    metrics.publish(replace(_ZERO, running=1, generated_tokens=15))
    metrics.publish(replace(_ZERO, running=1, generated_tokens=15))
    running = MetricFamily.made["heptagram_num_requests_running"]
    tokens = MetricFamily.made["heptagram_generation_tokens_total"]
    assert MetricFamily.labels["heptagram_num_requests_running"] == _LABELS
    assert (running.value, running.updates) == (1, 2)
    assert (tokens.value, tokens.updates) == (15, 2)
    assert MetricFamily.made["heptagram_steps_total"].updates == 0


def test_a_labelled_counter_has_a_number_for_each_value(metrics: EngineMetrics) -> None:
    metrics.publish(replace(_ZERO, failed={"internal": 0}))
    metrics.publish(replace(_ZERO, failed={"internal": 2, "invalid_value": 1}))
    assert value("requests_failed_total{code=internal}") == 2
    assert value("requests_failed_total{code=invalid_value}") == 1
    key = "heptagram_requests_failed_total{code=internal}"
    assert MetricFamily.labels[key] == {**_LABELS, "code": "internal"}


def test_a_histogram_is_published_once_a_second(metrics: EngineMetrics, clock: Clock) -> None:
    def publish(*counts: int, total: float) -> None:
        metrics.publish(replace(_ZERO, distributions={"first_token": Distribution((0.5, 2.0), counts, total)}))

    publish(0, 1, 0, total=1.0)
    clock.now += 0.9
    publish(2, 1, 4, total=21.0)
    name = "time_to_first_token_seconds"
    assert value(f"{name}_count") == 1
    clock.now += 0.2
    publish(2, 1, 4, total=21.0)
    buckets = [value(f"{name}_bucket{{le={bound}}}") for bound in ("0.5", "2", "+Inf")]
    assert buckets == [2, 3, 7]
    assert (value(f"{name}_count"), value(f"{name}_sum")) == (7, 21.0)


def test_an_observation_falls_below_the_bounds_that_are_not_smaller() -> None:
    histogram = Histogram((1.0, 2.0))
    for observed, times in ((0.0, 1), (1.0, 2), (1.5, 1), (2.5, 3)):
        histogram.observe(observed, times)
    told = histogram.take()
    assert (told.counts, told.cumulative, told.count, told.sum) == ((3, 1, 3), (3, 4, 7), 7, 11.0)


def test_a_refusal_is_counted_at_once_by_its_code() -> None:
    MetricFamily.made.clear()
    rejections = Rejections(model="preprocess", version="2")
    for code in ("missing", "overloaded", "missing"):
        rejections.count(code)
    assert value("requests_rejected_total{code=missing}") == 2
    assert value("requests_rejected_total{code=overloaded}") == 1
    rejections.close()


def test_a_refusal_that_cannot_be_counted_is_still_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: object, *, labels: Any) -> None:
        raise RuntimeError("no room")

    rejections = Rejections(model="preprocess", version="2")
    monkeypatch.setattr(MetricFamily, "Metric", broken)
    rejections.count("missing")
    assert "no room" in caplog.text
