"""Runs in turn: every arm once a round, so that a busy machine is equally unkind to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Run = Mapping[str, float]
"""What one run of one arm measured, by name. Every run of an arm has the same names."""


@dataclass(frozen=True, slots=True)
class Turns:
    """``runs[arm][round]``; arms in the order they were given."""

    runs: Mapping[str, Sequence[Run]]

    def median(self, arm: str, name: str) -> float:
        return median(run[name] for run in self.runs[arm])

    def ratio(self, over: str, under: str, name: str) -> float:
        """The median of each round's ``over / under``."""
        pairs = zip(self.runs[over], self.runs[under], strict=True)
        return median(one[name] / other[name] for one, other in pairs)

    def json(self) -> dict[str, Any]:
        return {arm: [dict(run) for run in runs] for arm, runs in self.runs.items()}


def in_turn(arms: Mapping[str, Callable[[], Run]], rounds: int, *, warm_up: bool = True) -> Turns:
    """Run all arms ``rounds`` times, after one round that is thrown away; every other round runs backwards."""
    if warm_up:
        for arm in arms.values():
            arm()
    runs: dict[str, list[Run]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in list(arms)[:: 1 if number % 2 == 0 else -1]:
            runs[name].append(arms[name]())
    return Turns(runs)
