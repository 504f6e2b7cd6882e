"""Counters: one set a sequence, one set the engine. The numbers leave as wire stats and as a snapshot."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

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

    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    invalid_outputs: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    steps: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0
