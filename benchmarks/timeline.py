"""When the parts of an engine's step run, and how much of them lies under its forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

from heptagram_backend.engine import K7Engine
from heptagram_backend.inputs import Batch
from heptagram_backend.scheduler import Chunk

PHASES: Final = ("schedule", "draft", "load", "forward", "fill", "verify", "commit", "tell")
_WIDTH: Final = 60


class Span(NamedTuple):
    """On the clock, in seconds; ``size`` sequences of a forward without prompts beside it."""

    phase: str
    begin: float
    end: float
    size: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """From the end of one commit to the end of the next; what is told in it is the step before."""

    begin: float
    end: float
    spans: Sequence[Span]

    @property
    def forward(self) -> Span:
        return next(span for span in self.spans if span.phase == "forward")

    def took(self, phase: str) -> float:
        return sum(span.end - span.begin for span in self.spans if span.phase == phase)

    def hidden(self, phase: str) -> float:
        """What of ``phase`` lies under the forward."""
        begin, end = self.forward[1:3]
        shared = (min(span.end, end) - max(span.begin, begin) for span in self.spans if span.phase == phase)
        return sum(max(0.0, seconds) for seconds in shared)


class Timeline:
    """Notes the parts of the steps of ``engine`` from now on."""

    def __init__(self, engine: K7Engine) -> None:
        loop = engine._loop
        step, inputs = loop._step, loop._step._inputs
        self._spans: list[Span] = []
        self._watch(loop._scheduler, "schedule", "schedule")
        self._watch(step, "plan", "draft")
        self._watch(inputs, "load", "load")
        self._watch(step, "_forward", "forward", _sequences)
        self._watch(step, "_mask", "fill")
        self._watch(inputs, "mask", "verify")
        self._watch(inputs, "verify", "verify")
        self._watch(step, "commit", "commit")
        for name in ("progress", "finish", "fail"):
            self._watch(loop._teller, name, "tell")

    def fullest(self) -> list[Step]:
        """Of all steps without prompts since this was last asked, those with the most sequences."""
        spans, self._spans = sorted(self._spans, key=lambda span: span.begin), []
        commits = [span.end for span in spans if span.phase == "commit"]
        steps = [
            Step(begin, end, [span for span in spans if begin <= span.begin < end]) for begin, end in pairwise(commits)
        ]
        most = max(step.forward.size for step in steps)
        return [step for step in steps if step.forward.size == most]

    def _watch(self, owner: object, name: str, phase: str, size: Callable[..., int] = lambda *_: 0) -> None:
        inner = getattr(owner, name)

        @wraps(inner)
        def watched(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return inner(*arguments)
            finally:
                self._spans.append(Span(phase, begin, time.perf_counter(), size(*arguments)))

        setattr(owner, name, watched)


def _sequences(batch: Batch, chunks: Sequence[Chunk]) -> int:
    return 0 if chunks else batch.size


def drawn(steps: Sequence[Step]) -> str:
    """The usual step: each phase from its median begin to its median end, and the milliseconds that it takes."""
    whole = median(step.end - step.begin for step in steps)
    lines = []
    for phase in PHASES:
        found = [step for step in steps if step.took(phase)]
        if not found:
            continue
        begin = median(min(span.begin for span in step.spans if span.phase == phase) - step.begin for step in found)
        end = median(max(span.end for span in step.spans if span.phase == phase) - step.begin for step in found)
        left, right = (min(_WIDTH, round(_WIDTH * at / whole)) for at in (begin, end))
        bar = (" " * left + "#" * max(1, right - left)).ljust(_WIDTH)
        took, hidden = (1e3 * median(part(step, phase) for step in found) for part in (Step.took, Step.hidden))
        lines.append(f"{phase:8} |{bar}| {took:6.2f} ms, {hidden:6.2f} under the forward")
    return "\n".join(lines)
