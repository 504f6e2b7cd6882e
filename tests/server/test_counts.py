"""A load whose every request is known: the server's numbers equal what it must have cost, no more and no less."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import numpy as np
import pytest

from heptagram_wire import tensors as names
from heptagram_wire.events import Failure, Finish, Start
from tests.server.counted import Asked
from tests.server.served import RawStream, Served, number_input, text_input

pytestmark = pytest.mark.server

Key = tuple[str, str]  # a name and a label

_MASK_BYTES = 288 // 8
_TIMES = ("_seconds_sum", "_seconds_bucket")
_HELD = "h" * 2400


@dataclass(frozen=True, slots=True)
class Load:
    """``times`` the same request, each of whose steps has so many drafts, and so many of them accepted."""

    asked: Asked
    times: int
    steps: Sequence[tuple[int, int]]
    ends: str  # the label of the end
    prompt_tokens: int = 2
    forced: int = 0

    @property
    def generated(self) -> int:
        return sum(accepted + 1 for _, accepted in self.steps)


LOADS = (
    Load(Asked("x" * 20, drafts="right"), 3, [(7, 7), (7, 7), (4, 4)], "finished_reason=stop", 21),
    Load(Asked("x" * 20, drafts="wrong"), 2, [(7, 0)] * 21, "finished_reason=stop", 21),
    Load(Asked("x" * 20, max_tokens=5), 1, [(0, 0)] * 5, "finished_reason=length", 21),
    Load(Asked("x", grammar='root ::= "abcdef"', drafts="auto"), 2, [(6, 6)], "finished_reason=stop", forced=6),
    Load(Asked("x", object=True), 1, [(0, 0)] * 2, "code=invalid_output"),
    Load(Asked("b"), 1, [], "code=internal"),
)
REFUSED = (
    ("{", "invalid_json", 2),
    (Asked("x", max_tokens=5000), "context_length_exceeded", 1),
)


def test_the_numbers_of_a_known_load(counted: Served) -> None:
    for load in LOADS:
        for _ in range(load.times):
            assert ended(counted, load.asked) == load.ends.partition("=")[2]
    for asked, code, times in REFUSED:
        for _ in range(times):
            assert ended(counted, asked) == code
    hold_cut_and_overload(counted)
    assert differences(counted, expected()) == {}


def hold_cut_and_overload(counted: Served) -> None:
    """Two prompts that are long to write, a third that waits for them, three for which there is no room."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(counted.chat(written(Asked(_HELD)))) for _ in range(2))
        started(first)
        id = started(second)
        third = stack.enter_context(counted.chat(written(Asked(_HELD, deadline_ms=700))))
        started(third)
        for _ in range(3):
            assert ended(counted, Asked("x")) == "overloaded"
        assert end_of(third) == "deadline"
        first.cancel()
        with counted.stream(
            text_input(names.ID, id), number_input(names.STOP, np.array([True])), model=names.GENERATE
        ) as stop:
            stop.rest()
        assert end_of(second) == "cancelled"


def expected() -> Counter[Key]:
    """What all that must have cost; only the times of histograms are not known."""
    told: Counter[Key] = Counter()

    def add(name: str, count: int, label: str = "") -> None:
        told[name, label] += count

    for load in LOADS:
        family = "request_success_total" if load.ends.startswith("finished") else "requests_failed_total"
        add(family, load.times, load.ends)
        for _ in range(load.times):
            add("prompt_tokens_total", load.prompt_tokens)
            add("generation_tokens_total", load.generated)
            add("steps_total", len(load.steps))
            add("spec_decode_num_draft_tokens_total", sum(drafted for drafted, _ in load.steps))
            add("spec_decode_num_accepted_tokens_total", sum(accepted for _, accepted in load.steps))
            add("forced_tokens_total", load.forced)
            if load.steps:
                add("request_queue_time_seconds_count", 1)
                add("time_to_first_token_seconds_count", 1)
                add("inter_token_latency_seconds_count", load.generated - load.steps[0][1] - 1)
                observe(told, "request_prompt_tokens", load.prompt_tokens, [2**power for power in range(18)])
                observe(told, "request_generation_tokens", load.generated, [2**power for power in range(18)])
                add("e2e_request_latency_seconds_count", 1)
            for _, accepted in load.steps:
                observe(told, "spec_decode_accepted_tokens_per_step", accepted, range(8))
                for place in range(accepted):
                    add("spec_decode_num_accepted_tokens_per_pos_total", 1, f"position={place}")
    observe(told, "request_prompt_tokens", len(_HELD) + 1, [2**power for power in range(18)])
    observe(told, "request_generation_tokens", 0, [2**power for power in range(18)])
    add("e2e_request_latency_seconds_count", 1)
    add("prompt_tokens_total", 3 * (len(_HELD) + 1))
    add("step_planning_seconds_count", told["steps_total", ""] + 1)  # the one that broke
    add("grammar_compile_seconds_count", 1)
    add("masked_rows_total", 2 * 7)
    add("mask_hits_total", 7)
    add("mask_bytes_total", 7 * _MASK_BYTES)
    add("invalid_outputs_total", 1)
    for _, code, times in REFUSED:
        add("requests_rejected_total", times, f"code={code}")
    add("requests_rejected_total", 3, "code=overloaded")
    for cause in ("client", "stop", "deadline"):
        add("requests_cancelled_total", 1, f"cause={cause}")
    gauges = {"slots_total": 2, "kv_blocks_total": 2, "kv_blocks_free": 2, "mask_pool_rows_total": 128}
    for name, value in {**gauges, "mask_pool_rows_used": 1 + 7}.items():
        add(name, value)
    return told


def observe(told: Counter[Key], name: str, value: int, bounds: Sequence[int]) -> None:
    told[f"{name}_count", ""] += 1
    told[f"{name}_sum", ""] += value
    for bound in [*bounds, float("inf")]:
        told[f"{name}_bucket", f"le={bound:g}".replace("inf", "+Inf")] += value <= bound


def differences(counted: Served, wanted: Mapping[Key, float]) -> dict[Key, tuple[float, float]]:
    """What is told and what was wanted, where they differ, but for times; histograms are up to 1 s late."""
    until = time.monotonic() + 10
    while True:
        told = {key: value for key, value in counted.samples().items() if not key[0].endswith(_TIMES)}
        pairs = {key: (told.get(key, 0), wanted.get(key, 0)) for key in told.keys() | wanted.keys()}
        differ = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        if not differ or time.monotonic() > until:
            return differ
        time.sleep(0.1)


def written(asked: Asked | str) -> str:
    return asked if isinstance(asked, str) else json.dumps(asdict(asked))


def ended(counted: Served, asked: Asked | str) -> str:
    with counted.chat(written(asked)) as stream:
        return end_of(stream)


def end_of(stream: RawStream) -> str:
    """The reason of a finish, the code of a failure or of an error."""
    last = stream.rest()[-1]
    if last.error is not None:
        return last.error.partition("[")[2].partition("]")[0]
    match last.events[-1]:
        case Finish(reason=reason):
            return reason
        case Failure(code=code):
            return code
    raise AssertionError(last)


def started(stream: RawStream) -> str:
    first = stream.next().events[0]
    assert isinstance(first, Start)
    return first.id
