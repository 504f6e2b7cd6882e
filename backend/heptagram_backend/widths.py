"""How many drafts of each sequence a step verifies: all of them, or those that are worth their rows.

A draft that is likely rejected costs a row in which another sequence's draft, or the next step, would have gained more.
So a step takes the drafts by their chance to survive, as many as give the most tokens a second (after the prefix
scheduler of DSpark's paper, algorithm 1).

Whether a draft survives is estimated before the step draws a token: widths look at nothing that is sampled later. Nor
do they change what is: a token is the argmax of its row, or is drawn with noise that its seed and position give. Only
where drafts are accepted by probability would a seed's answer follow the widths, and with them whatever runs beside it;
there all drafts are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from heptagram_backend.acceptance import Rates, survivals, trials
from heptagram_backend.plan import Draft
from heptagram_backend.release import EngineOptions
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.step_cost import EIGHT, StepCost, rounded

Cost = Callable[[int], float]
"""Seconds of a step by its rows, a multiple of eight."""


def choose(survivals: Sequence[Sequence[float]], cost: Cost, *, least: Sequence[int] = ()) -> list[int]:
    """The widths with the most expected tokens a second; of several the one with the fewest rows.

    Exact, whatever ``cost`` is: among widths of as many rows, the likeliest drafts are best, and rows up to a multiple
    of eight are free.

    Args:
        survivals: for each sequence of the step and each of its drafts the chance that it and all before it are
            accepted; never rising.
        cost: of the whole step.
        least: widths that are not to be reduced, by sequence.
    """
    widths = [*least] or [0] * len(survivals)
    ranked = sorted(
        (-chance, place, which)
        for which, chances in enumerate(survivals)
        for place, chance in enumerate(chances)
        if place >= widths[which]
    )
    rows = len(survivals) + sum(widths)
    tokens = len(survivals) + sum(sum(chances[:width]) for chances, width in zip(survivals, widths, strict=True))
    best, best_rate, taken = 0, 0.0, 0
    for bucket in range(rounded(rows), rounded(rows + len(ranked)) + 1, EIGHT):
        more = min(bucket - rows, len(ranked))
        tokens -= sum(chance for chance, _, _ in ranked[taken:more])
        taken, rate = more, tokens / cost(bucket)
        if rate > best_rate:
            best, best_rate = taken, rate
    for _, _, which in ranked[:best]:
        widths[which] += 1
    return widths


class Widths(Protocol):
    """Cuts the drafts of a step, and hears what became of them."""

    def narrowed(self, drafted: Sequence[tuple[Running, Draft]], *, beside: int) -> list[Draft]:
        """The drafts that are verified, in a forward that has ``beside`` rows of prompts too."""

    def verified(self, sequence: Running, draft: Draft, accepted: int) -> None:
        """The target took the first ``accepted`` of the drafts and would have none behind them."""

    def computed(self, drafted: Sequence[tuple[Running, Draft]], seconds: float) -> None:
        """A step without prompts took so long."""


class FullWidth:
    """All drafts, but for those from the first one on whose drafter gives it a chance below ``threshold``."""

    def __init__(self, threshold: float = 0.0) -> None:
        self._threshold = threshold

    def narrowed(self, drafted: Sequence[tuple[Running, Draft]], *, beside: int) -> list[Draft]:
        del beside
        return [draft.narrowed(self._confident(draft)) for _, draft in drafted]

    def verified(self, sequence: Running, draft: Draft, accepted: int) -> None:
        del sequence, draft, accepted

    def computed(self, drafted: Sequence[tuple[Running, Draft]], seconds: float) -> None:
        del drafted, seconds

    def _confident(self, draft: Draft) -> int:
        chances = [origin.chance for origin in draft.origins]
        unsure = (place for place, chance in enumerate(chances) if chance is not None and chance < self._threshold)
        return next(unsure, len(chances))


class AutoWidth:
    """Of what ``full`` leaves, those that are worth their rows, by measured acceptance and measured cost."""

    def __init__(self, full: FullWidth, cost: StepCost, *, probabilistic: bool) -> None:
        self._full = full
        self._cost = cost
        self._probabilistic = probabilistic
        self._everyone = Rates(memory=256, weight=2)

    def narrowed(self, drafted: Sequence[tuple[Running, Draft]], *, beside: int) -> list[Draft]:
        drafts = self._full.narrowed(drafted, beside=beside)
        sequences = [sequence for sequence, _ in drafted]
        widths = choose(
            [self._survivals(sequence, draft) for sequence, draft in zip(sequences, drafts, strict=True)],
            lambda rows: self._cost.seconds(rows + beside, len(sequences)),
            least=[len(draft.tokens) * self._is_fixed(one) for one, draft in zip(sequences, drafts, strict=True)],
        )
        return [draft.narrowed(width) for draft, width in zip(drafts, widths, strict=True)]

    def verified(self, sequence: Running, draft: Draft, accepted: int) -> None:
        shown = trials(draft.origins, accepted, constrained=sequence.grammar is not None)
        sequence.acceptance.observe(shown)
        self._everyone.observe(shown)

    def computed(self, drafted: Sequence[tuple[Running, Draft]], seconds: float) -> None:
        rows = sum(1 + len(draft.tokens) for _, draft in drafted)
        self._cost.observe(rows, len(drafted), seconds)

    def _survivals(self, sequence: Running, draft: Draft) -> list[float]:
        return survivals(
            draft.origins,
            constrained=sequence.grammar is not None,
            own=sequence.acceptance,
            everyone=self._everyone,
        )

    def _is_fixed(self, sequence: Running) -> bool:
        return self._probabilistic and sequence.sampling is not None


def make_widths(options: EngineOptions) -> Widths:
    """As a release asks for."""
    full = FullWidth(options.dspark_confidence_threshold)
    if options.draft_width == "full":
        return full
    probabilistic = options.rejection_sample_method == "probabilistic"
    return AutoWidth(full, StepCost(options.device), probabilistic=probabilistic)
