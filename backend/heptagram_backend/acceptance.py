"""How often drafts are accepted, measured: by source and place, for each request and for all of them. No torch.

A draft's chance is that of being accepted once all drafts before it were. Behind the first rejection nothing is known,
so nothing is counted there. A request starts from what all of them have shown, and those from a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from heptagram_backend.drafts.base import FORCED, LAST_FORCED, Origin

Key = tuple[str, bool, int]
"""A source, whether a grammar checks its drafts, and the place of a draft or, of a drafter that gives chances itself,
the tenth that its chance lies in."""

_PRIORS: Final = {
    FORCED: 0.98,
    LAST_FORCED: 0.6,
    "prompt_lookup/3": 0.6,
    "prompt_lookup/2": 0.4,
    "prompt_lookup/1": 0.25,
}
_UNKNOWN: Final = 0.6
_TENTHS: Final = 10


class Rates:
    """Shares of successes. What happened ``memory`` steps ago counts half; a prior counts as ``weight`` trials."""

    def __init__(self, *, memory: float, weight: float = 1.0) -> None:
        self._decay = 0.5 ** (1 / memory)
        self._weight = weight
        self._step = 0
        self._counts: dict[Key, tuple[float, float, int]] = {}  # successes, trials, and the step of the last one

    def rate(self, key: Key, prior: float) -> float:
        """From ``prior`` towards what was seen, and back as that grows old."""
        successes, trials = self._now(key)
        return (successes + self._weight * prior) / (trials + self._weight)

    def observe(self, trials: Iterable[tuple[Key, bool]]) -> None:
        """What one step has shown."""
        self._step += 1
        for key, success in trials:
            successes, count = self._now(key)
            self._counts[key] = successes + success, count + 1, self._step

    def _now(self, key: Key) -> tuple[float, float]:
        successes, trials, step = self._counts.get(key, (0.0, 0.0, 0))
        faded = self._decay ** (self._step - step)
        return successes * faded, trials * faded


def survivals(origins: Sequence[Origin], *, constrained: bool, own: Rates, everyone: Rates) -> list[float]:
    """For each draft of a step, the chance that it and all before it are accepted; never rising."""
    alive, chances = 1.0, []
    for place, origin in enumerate(origins):
        key = _key(origin, place, constrained)
        guess = _PRIORS.get(origin.source, _UNKNOWN) if origin.chance is None else origin.chance
        alive *= own.rate(key, everyone.rate(key, guess))
        chances.append(alive)
    return chances


def trials(origins: Sequence[Origin], accepted: int, *, constrained: bool) -> list[tuple[Key, bool]]:
    """What a step has shown of its drafts: the first ``accepted`` ones were right, and the one behind them wrong."""
    tried = enumerate(origins[: accepted + 1])
    return [(_key(origin, place, constrained), place < accepted) for place, origin in tried]


def _key(origin: Origin, place: int, constrained: bool) -> Key:
    if origin.chance is None:
        return origin.source, constrained, place
    return origin.source, constrained, min(int(origin.chance * _TENTHS), _TENTHS - 1)
