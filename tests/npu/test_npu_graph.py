"""The order of calls in capture, update and replay, noted by a stand-in for ``torch.npu``; no NPU has run them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from heptagram_kernels.npu_graph import NpuGraph
from tests.npu.runtime import Noted

CAPTURE = ["side waits for current", "on side", "step", "off side", "current waits for side"]
OUTPUT = torch.zeros(1)


def _step(runtime: Noted) -> Callable[[], Tensor]:
    def step() -> Tensor:
        runtime.notes.append("step")
        return OUTPUT

    return step


def test_a_step_without_host_integers_is_captured_once_and_replayed_in_one_call() -> None:
    runtime = Noted()
    graph = NpuGraph(runtime=runtime)
    graph.capture(_step(runtime))
    assert runtime.notes == [*CAPTURE, ("capture", "a pool", False), "step", "captured"]
    runtime.notes.clear()
    assert graph.replay() is OUTPUT
    assert graph.replay() is OUTPUT
    assert runtime.notes == ["replay", "replay"]


def test_lengths_are_set_after_the_replay_before_has_run_and_before_the_next_starts() -> None:
    lengths = [[8, 8], [13, 40], [21, 48]]
    runtime = Noted(records=[{"actual_seq_lengths_kv": [8, 8]}] * 2)
    graph = NpuGraph(lambda: {"actual_seq_lengths_kv": lengths[0]}, runtime)
    graph.capture(_step(runtime))
    assert ("capture", "a pool", True) in runtime.notes
    runtime.notes.clear()
    for _ in range(2):
        lengths.pop(0)
        graph.replay()
    assert runtime.notes == [
        "current synchronized",
        ("update", [{"actual_seq_lengths_kv": [13, 40]}]),
        "replay",
        "current synchronized",
        ("update", [{"actual_seq_lengths_kv": [21, 48]}]),
        "replay",
    ]


def test_lengths_of_another_number_than_captured_start_no_replay() -> None:
    lengths = [8, 8]
    runtime = Noted(records=[{"actual_seq_lengths_kv": lengths}])
    graph = NpuGraph(lambda: {"actual_seq_lengths_kv": lengths}, runtime)
    graph.capture(_step(runtime))
    runtime.notes.clear()
    lengths.append(8)
    with pytest.raises(
        ValueError, match=r"host arguments: got {'actual_seq_lengths_kv': 3} values, captured were .*2}"
    ):
        graph.replay()
    assert not runtime.notes


@pytest.mark.parametrize("records", [[], [{"actual_seq_lengths_kv": [8]}, {"actual_seq_kvlen": [8]}]])
def test_lengths_that_an_operator_of_the_step_would_not_be_given_are_refused(
    records: list[dict[str, list[int]]],
) -> None:
    runtime = Noted(records=records)
    graph = NpuGraph(lambda: {"actual_seq_lengths_kv": [8]}, runtime)
    with pytest.raises(ValueError, match=f"host argument actual_seq_lengths_kv: {len(records)} operators"):
        graph.capture(_step(runtime))
    with pytest.raises(ValueError, match="nothing was captured"):
        graph.replay()


def test_a_graph_holds_one_step() -> None:
    runtime = Noted()
    graph = NpuGraph(runtime=runtime)
    graph.capture(_step(runtime))
    with pytest.raises(ValueError, match="holds a step already"):
        graph.capture(_step(runtime))


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("aclrtStreamCreate failed, error code is 207008", "no streams left for another graph .*fewer batch sizes"),
        ("Alloc sq cq fail", "HDK.* of 25.5.1 or later"),
        ("an operator fell back", "^an operator fell back$"),
    ],
)
def test_a_capture_that_fails_says_what_to_do(failure: str, said: str) -> None:
    runtime = Noted(failure=failure)
    with pytest.raises(RuntimeError, match=said):
        NpuGraph(runtime=runtime).capture(_step(runtime))
