"""Snapshots become gauges and counters; only changes are sent."""

from __future__ import annotations

import os
from dataclasses import fields, replace

from heptagram_backend.engine_api import EngineSnapshot
from heptagram_backend.triton.metrics import EngineMetrics
from tests.triton.fake_pb_utils import MetricFamily

_ZERO = EngineSnapshot(**{field.name: 0 for field in fields(EngineSnapshot)})


def test_gauges_are_set_and_counters_grow_by_the_difference() -> None:
    MetricFamily.made.clear()
    metrics = EngineMetrics(model="generate", version="1")
    assert len(MetricFamily.made) == len(fields(EngineSnapshot))
    metrics.publish(replace(_ZERO, running=3, generated_tokens=10))
    metrics.publish(replace(_ZERO, running=1, generated_tokens=15))
    metrics.publish(replace(_ZERO, running=1, generated_tokens=15))
    assert MetricFamily.labels["heptagram_running"] == {"model": "generate", "version": "1", "pid": str(os.getpid())}
    running, tokens = MetricFamily.made["heptagram_running"], MetricFamily.made["heptagram_generated_tokens_total"]
    assert (running.value, running.updates) == (1, 2)
    assert (tokens.value, tokens.updates) == (15, 2)
    assert MetricFamily.made["heptagram_steps_total"].updates == 0
    metrics.close()
