"""Distributions, counted where they arise: how many observations lie below each bound. No torch, no locks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram at one moment: ``counts[i]`` lie above ``bounds[i - 1]`` and at most at ``bounds[i]``; the last
    count, one more than there are bounds, lies above them all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def cumulative(self) -> tuple[int, ...]:
        """What Prometheus' buckets hold: all at most at each bound, and all."""
        return tuple(accumulate(self.counts))


class Histogram:
    """One thread observes, or those that hold one lock; any thread may :meth:`take`."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """``value`` was seen so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def take(self) -> Distribution:
        return Distribution(self._bounds, tuple(self._counts), self._sum)
