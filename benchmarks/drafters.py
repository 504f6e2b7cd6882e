"""Draft sources side by side, alone and in order, on tool calls, talk and code: what a step commits, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_engine import BenchEngine
from benchmarks.steps import Suite, one_by_one
from benchmarks.table import table
from benchmarks.turns import Run, in_turn
from heptagram_backend.generation import DraftSource, GenerationRequest
from heptagram_kernels.layout import ROWS

SHIPPED: Final = Path(__file__).parents[1] / "backend/weights/smollm2-135m-dspark"
SOURCES: Final[tuple[DraftSource, ...]] = (
    "none",
    "prompt_lookup",
    "grammar_forced",
    "prompt_lookup,grammar_forced",
    "dspark",
    "dspark,grammar_forced",
    "prompt_lookup,dspark",
    "prompt_lookup,dspark,grammar_forced",
)
_COLUMNS: Final = {
    "tokens a step": "tokens_per_step",
    "tokens/s": "tokens_per_s",
    "ms a step": "step_ms",
    **{f"{place} accepted": f"accepted_{place}" for place in range(1, ROWS)},
}


def drafters(
    plain: BenchEngine,
    drafting: BenchEngine | None,
    work: Mapping[str, Sequence[GenerationRequest]],
    rounds: int,
) -> Suite:
    """All requests of ``work``, by kind and draft source; the output is the same whatever is drafted.

    ``drafting`` is an engine with a DSpark drafter: the other sources are measured without one, which would read along.
    The columns ``n accepted`` hold the share of steps that accepted at least ``n`` drafts.
    """
    rows: list[list[Any]] = []
    runs: dict[str, Any] = {}
    for kind, requests in work.items():
        constrained = any(request.constraint is not None for request in requests)
        arms: dict[str, Callable[[], Run]] = {
            source: partial(one_by_one, engine, [replace(request, drafts=source) for request in requests])
            for source in SOURCES
            if (engine := drafting if "dspark" in source else plain) is not None
            and (constrained or "grammar" not in source)
        }
        turns = in_turn(arms, rounds)
        for arm in arms:
            faster = turns.ratio(arm, "none", "tokens_per_s")
            rows.append([kind, arm, *[turns.median(arm, name) for name in _COLUMNS.values()], f"{faster:.2f}x"])
        runs[kind] = turns.json()
    header = ("prompts", "drafts", *_COLUMNS, "of none")
    return Suite("Draft sources, greedy", table(header, rows), {"runs": runs})
