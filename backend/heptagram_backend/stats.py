"""Counters: one set a sequence, one set the engine. The numbers leave as wire stats and as a snapshot."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import get_args

from heptagram_backend.engine_api import CancelCause
from heptagram_wire.errors import FAILURE_CODES
from heptagram_wire.events import SpeculativeStats, Stats, Usage


@dataclass(slots=True)
class SequenceStats:
    """What one request has cost so far; ``forced`` counts accepted drafts that were the grammar's forced text."""

    admitted: float | None = None
    first_step: float | None = None
    steps: int = 0
    forced: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0
    seed: int | None = None  # of the noise that tokens are drawn with
    preemptions: int = 0
    drafted: int = 0
    generated: int = 0
    measured: int = 0  # of the generated ones
    last_token: float | None = None
    histogram: list[int] = field(default_factory=lambda: [0] * 8)

    def admit(self) -> None:
        """It left the queue; only the first time counts."""
        self.admitted = self.admitted or time.monotonic()

    def count_step(self, *, drafted: int, accepted: int) -> None:
        """One K7 step verified ``drafted`` drafts, of which ``accepted`` were taken."""
        self.steps += 1
        self.drafted += drafted
        self.histogram[accepted] += 1

    def wire(self) -> Stats:
        now = time.monotonic()
        admitted = self.admitted if self.admitted is not None else now
        first = self.first_step if self.first_step is not None else now
        return Stats(
            prefill_s=round(first - admitted, 6),
            decode_s=round(now - first, 6),
            steps=self.steps,
            forced=self.forced,
            masked_rows=self.masked_rows,
            mask_bytes=self.mask_bytes,
            seed=self.seed,
            preemptions=self.preemptions,
            speculative_decoding=SpeculativeStats(tuple(self.histogram), self.drafted),
        )

    def usage(self, prompt_tokens: int) -> Usage:
        return Usage(prompt_tokens, self.generated)


@dataclass(slots=True)
class EngineStats:
    """Totals since the engine started; monotonic."""

    finished: Counter[str] = field(default_factory=lambda: _zeros("stop", "length", "tool_calls"))
    failed: Counter[str] = field(default_factory=lambda: _zeros(*FAILURE_CODES))
    cancelled: Counter[str] = field(default_factory=lambda: _zeros(*get_args(CancelCause)))
    invalid_outputs: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    forced_tokens: int = 0
    steps: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0


def _zeros(*names: str) -> Counter[str]:
    """What is counted from the start, so that its first time is seen as a growth."""
    return Counter(dict.fromkeys(names, 0))
