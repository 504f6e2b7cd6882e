"""Suites on the K7 step: what strict costs, what drafts gain, what planning and masks weigh, how batches scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from benchmarks.bench_engine import BenchEngine
from benchmarks.table import table
from benchmarks.turns import Run, Turns, in_turn
from benchmarks.workload import ordinary
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.masks import words_for
from heptagram_kernels.layout import ROWS

BATCHES: Final = (1, 4, 8)


@dataclass(frozen=True, slots=True)
class Suite:
    """``text`` is a Markdown table; ``data`` goes into the JSON."""

    title: str
    text: str
    data: Mapping[str, Any]


def strict_against_ordinary(engine: BenchEngine, requests: Sequence[GenerationRequest], rounds: int) -> Suite:
    """The same tokens in all arms, by a teacher-forced target: under the grammar and free, with drafts and without."""
    scripts = [engine.run([request]).tokens[0] for request in requests]
    requests = [replace(request, max_tokens=len(script)) for request, script in zip(requests, scripts, strict=True)]
    arms = {
        f"{kind}, K{drafts}": partial(one_by_one, engine, [_drafted(change(one), drafts) for one in requests], scripts)
        for drafts in (7, 0)
        for kind, change in (("strict", _unchanged), ("ordinary", ordinary))
    }
    turns = in_turn(arms, rounds)
    rows = _speed(turns, arms, _SPEED)
    pairs = [("strict, K7", "ordinary, K7"), ("strict, K0", "ordinary, K0"), ("strict, K7", "strict, K0")]
    ratios = _ratios(turns, pairs)
    return _suite("Strict against ordinary, the same tokens forced in all arms", ("arm", *_SPEED), rows, ratios, turns)


def batches(engine: BenchEngine, requests: Sequence[GenerationRequest], rounds: int, *, warm_up: bool = True) -> Suite:
    """Batches of strict K7, strict K0 and ordinary K7 requests, each to its own end."""
    kinds: dict[str, Callable[[GenerationRequest], GenerationRequest]] = {
        "strict, K7": lambda one: _drafted(one, 7),
        "strict, K0": lambda one: _drafted(one, 0),
    }
    arms = {
        f"batch {size}, {kind}": partial(_batch, engine, [change(one) for one in requests[:size]])
        for size in BATCHES
        for kind, change in kinds.items()
    }
    turns = in_turn(arms, rounds, warm_up=warm_up)
    rows = _speed(turns, arms, _WEIGHT)
    ratios = _ratios(turns, [(f"batch {size}, strict, K7", f"batch {size}, strict, K0") for size in BATCHES])
    return _suite("Batches of strict tool calls", ("arm", *_WEIGHT), rows, ratios, turns)


def masks(engine: BenchEngine, requests: Sequence[GenerationRequest]) -> Suite:
    """Mask bytes of an engine that has seen no request yet, and when the same requests come again."""
    first, again = (one_by_one(engine, requests) for _ in range(2))
    whole = ROWS * words_for(engine.target.vocab_size) * 4
    rows: list[list[Any]] = [
        ["never seen", first["mask_bytes_per_step"], first["masked_rows_per_step"], first["mask_bytes"]],
        ["seen before", again["mask_bytes_per_step"], again["masked_rows_per_step"], again["mask_bytes"]],
    ]
    header = ("requests", "mask bytes a step", "masked rows a step", "mask bytes in all")
    text = table(header, rows) + f"\n\nEight rows of a step are {whole} bytes."
    return Suite("Mask bytes, batch 1", text, {"first": first, "again": again, "eight_rows": whole})


# Columns and what fills them.
_SPEED: Final = {
    "tokens/s": "tokens_per_s",
    "CPU ms a token": "cpu_ms_per_token",
    "tokens a step": "tokens_per_step",
    "ms a step": "step_ms",
    "planning ms a step": "plan_ms_per_step",
}
_WEIGHT: Final = {
    "tokens/s": "tokens_per_s",
    "CPU ms a token": "cpu_ms_per_token",
    "ms a step": "step_ms",
    "planning ms a step": "plan_ms_per_step",
    "masked rows a step": "masked_rows_per_step",
}


def _speed(turns: Turns, arms: Iterable[str], columns: Mapping[str, str]) -> list[list[Any]]:
    return [[arm, *[turns.median(arm, name) for name in columns.values()]] for arm in arms]


def _ratios(turns: Turns, pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """How many times faster the first arm of a pair is: by the clock, and by what this process computed."""
    return {
        f"{fast} over {slow}": (
            turns.ratio(fast, slow, "tokens_per_s"),
            turns.ratio(slow, fast, "cpu_ms_per_token"),
        )
        for fast, slow in pairs
    }


def _suite(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    ratios: Mapping[str, tuple[float, float]],
    turns: Turns,
) -> Suite:
    faster = table(
        ("faster", "by time", "by CPU time"), [[name, f"{a:.2f}x", f"{b:.2f}x"] for name, (a, b) in ratios.items()]
    )
    text = f"{table(header, rows)}\n\n{faster}"
    return Suite(title, text, {"ratios": dict(ratios), "runs": turns.json()})


def one_by_one(
    engine: BenchEngine, requests: Sequence[GenerationRequest], scripts: Sequence[Sequence[int]] = ()
) -> Run:
    """All requests at batch 1, summed up."""
    total = None
    for number, request in enumerate(requests):
        measured = engine.run([request], scripts[number : number + 1])
        if scripts and measured.tokens[0] != scripts[number]:
            raise RuntimeError("the forced tokens did not come out")
        if total is None:
            total = measured
            continue
        total.add(measured)
    assert total is not None
    return total.numbers()


def _batch(engine: BenchEngine, requests: Sequence[GenerationRequest]) -> Run:
    return engine.run(requests).numbers()


def _drafted(request: GenerationRequest, drafts: int) -> GenerationRequest:
    return replace(request, num_speculative_tokens=drafts)


def _unchanged(request: GenerationRequest) -> GenerationRequest:
    return request
