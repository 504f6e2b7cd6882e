"""Two thousand short requests of the scripted engine, three in ten of them left by their client: nothing grows.

``HEPTAGRAM_SOAK`` multiplies the number of requests: 10 for a long night.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from tests.server.probe import Script
from tests.server.served import Served
from tests.server.soaking import Ask, Growth, soak

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

_TIMES = int(os.environ.get("HEPTAGRAM_SOAK", "1"))
_LEAVE = 0.3
_EACH = 400
# Allocators keep what they were given once; a leak of one response's buffers would be more than this.
_MOST_KIB_A_REQUEST, _SPARE_KIB = 1.0, 1024.0


def scripted(source: random.Random) -> Ask:
    """A client leaves where much is still to come: a cancel at the very end is Triton's to lose (docs/triton.md)."""
    if source.random() < _LEAVE:
        return Ask(json.loads(Script(deltas=100_000, step_ms=5).to_json()), leave_after=source.randint(1, 8))
    return Ask(json.loads(Script(deltas=source.randint(1, 8), step_ms=2).to_json()))


def test_nothing_grows(probes: Served, capsys: pytest.CaptureFixture[str]) -> None:
    address = probes.process.address
    urls = [f"grpc://{address.grpc_url}", f"http://{address.http_url}"]
    rounds = 5 * _TIMES
    growth, shared = soak(probes.process, urls, scripted, settle=probes.settle, warm_up=500, rounds=rounds, each=_EACH)
    with capsys.disabled():
        print(f"\n{_EACH * rounds} requests behind 500 of warm-up")  # noqa: T201
        print(*growth, f"shared memory {shared[0] / 2**20:.1f} -> {shared[1] / 2**20:.1f} MiB", sep="\n")  # noqa: T201
    for process in growth:
        check(process, _EACH * rounds)
    assert shared[1] <= shared[0]
    probes.reload()


def check(process: Growth, requests: int) -> None:
    assert process.last.threads <= process.first.threads + 2, process  # a pool of four may start its last one late
    assert not process.opened, process
    assert process.slope * requests < _MOST_KIB_A_REQUEST * requests + _SPARE_KIB, process
