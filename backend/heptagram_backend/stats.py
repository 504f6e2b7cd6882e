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
    """What one request has cost so far; ``forced`` counts accepted drafts that were the grammar's forced text.

    ``histogram[n]`` counts the steps in which ``n`` drafts were accepted. The drafts that were not verified are those
    of :class:`heptagram_backend.plan.Draft`.
    """

    admitted: float | None = None
    first_step: float | None = None
    steps: int = 0
    forced: int = 0
    replaced: int = 0
    cut_by_grammar: int = 0
    cut_by_width: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0
    seed: int | None = None  # of the noise that tokens are drawn with
    preemptions: int = 0
    drafted: int = 0
    generated: int = 0
    measured: int = 0  # of the generated ones
    compile_s: float = 0.0
    last_token: float | None = None
    histogram: list[int] = field(default_factory=lambda: [0] * 8)

    def admit(self) -> None:
        """It left the queue; only the first time counts."""
        self.admitted = self.admitted or time.monotonic()

    def wire(self) -> Stats:
        now = time.monotonic()
        admitted = self.admitted if self.admitted is not None else now
        first = self.first_step if self.first_step is not None else now
        return Stats(
            prefill_s=round(first - admitted, 6),
            decode_s=round(now - first, 6),
            steps=self.steps,
            forced=self.forced,
            replaced=self.replaced,
            cut_by_grammar=self.cut_by_grammar,
            cut_by_width=self.cut_by_width,
            masked_rows=self.masked_rows,
            mask_bytes=self.mask_bytes,
            seed=self.seed,
            preemptions=self.preemptions,
            compile_s=round(self.compile_s, 6),
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
    accepted_by_place: Counter[str] = field(default_factory=lambda: _zeros(*"0123456"))
    forced_tokens: int = 0
    replaced_tokens: int = 0
    cut_tokens: Counter[str] = field(default_factory=lambda: _zeros("grammar", "width"))
    steps: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0

    def close(self, sequence: SequenceStats) -> None:
        """Take in what a sequence has cost that is over."""
        self.generated_tokens += sequence.generated
        self.draft_tokens += sequence.drafted
        self.forced_tokens += sequence.forced
        self.replaced_tokens += sequence.replaced
        self.cut_tokens.update(grammar=sequence.cut_by_grammar, width=sequence.cut_by_width)
        self.masked_rows += sequence.masked_rows
        self.mask_hits += sequence.mask_hits
        self.mask_bytes += sequence.mask_bytes
        for accepted, steps in enumerate(sequence.histogram):
            self.accepted_draft_tokens += accepted * steps
            self.accepted_by_place.update({str(place): steps for place in range(accepted)})


def _zeros(*names: str) -> Counter[str]:
    """What is counted from the start, so that its first time is seen as a growth."""
    return Counter(dict.fromkeys(names, 0))
