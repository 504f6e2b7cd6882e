"""A thousand short requests, three in ten of them left by their client, over gRPC and HTTP: nothing grows.

``HEPTAGRAM_SOAK`` multiplies the number of requests: 10 for a long night.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable

import pytest

from tests.server.probe import Script
from tests.server.served import Served
from tests.server.soaking import Ask, Growth, soak

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

_TIMES = int(os.environ.get("HEPTAGRAM_SOAK", "1"))
_LEAVE = 0.3
# Allocators keep what they were given once; a leak of one response's buffers would be more than this.
_MOST_KIB_A_REQUEST, _SPARE_KIB = 1.0, 1024.0
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": _SCHEMA}}


def scripted(source: random.Random) -> Ask:
    """A client leaves where much is still to come: a cancel at the very end is Triton's to lose (docs/triton.md)."""
    if source.random() < _LEAVE:
        return Ask(json.loads(Script(deltas=100_000, step_ms=5).to_json()), leave_after=source.randint(1, 8))
    return Ask(json.loads(Script(deltas=source.randint(1, 8), step_ms=2).to_json()))


def smollm2(source: random.Random) -> Ask:
    request = {"messages": [{"role": "user", "content": f"Number {source.randint(0, 9)}?"}]}
    if source.random() < _LEAVE:
        return Ask(request | {"max_tokens": 500, "ignore_eos": True}, leave_after=source.randint(1, 3))
    if source.random() < 0.5:
        return Ask(request | {"tools": [_TOOL], "tool_choice": "required", "max_tokens": 40})
    return Ask(request | {"max_tokens": source.randint(1, 4)})


@pytest.mark.parametrize(("engine", "draw", "each"), [("probes", scripted, 400), ("shipped", smollm2, 40)])
def test_nothing_grows(
    engine: str,
    draw: Callable[[random.Random], Ask],
    each: int,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served: Served = request.getfixturevalue(engine)
    address = served.process.address
    urls = [f"grpc://{address.grpc_url}", f"http://{address.http_url}"]
    rounds = 5 * _TIMES
    growth, shared = soak(
        served.process, urls, draw, settle=served.settle, warm_up=each * 5 // 4, rounds=rounds, each=each
    )
    with capsys.disabled():
        print(f"\n{engine}: {each * rounds} requests behind {each * 5 // 4} of warm-up")  # noqa: T201
        print(*growth, f"shared memory {shared[0] / 2**20:.1f} -> {shared[1] / 2**20:.1f} MiB", sep="\n")  # noqa: T201
    for process in growth:
        check(process, each * rounds)
    assert shared[1] <= shared[0]
    served.reload()


def check(process: Growth, requests: int) -> None:
    assert process.last.threads <= process.first.threads + 2, process  # a pool of four may start its last one late
    assert process.last.files <= process.first.files, process
    assert process.slope * requests < _MOST_KIB_A_REQUEST * requests + _SPARE_KIB, process
