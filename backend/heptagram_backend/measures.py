"""What is measured of answers and steps, on the engine's thread; a request has ``n`` answers. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heptagram_backend.histogram import Distribution, Histogram
from heptagram_backend.sequence import Sequence

SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SHORT_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
TOKENS: Final = tuple(float(1 << power) for power in range(0, 18))
DRAFTS: Final = tuple(float(count) for count in range(8))


class Measures:
    """Each measure costs a search among some fifteen numbers; what is made public is :meth:`take`."""

    def __init__(self) -> None:
        self._queue = Histogram(SECONDS)
        self._first_token = Histogram(SECONDS)
        self._inter_token = Histogram(SECONDS)
        self._end_to_end = Histogram(SECONDS)
        self._prompt_tokens = Histogram(TOKENS)
        self._generation_tokens = Histogram(TOKENS)
        self._accepted = Histogram(DRAFTS)
        self._planning = Histogram(SHORT_SECONDS)

    def planned(self, seconds: float) -> None:
        """The drafts of a step, and what masks are not left for the forward, took so long."""
        self._planning.observe(seconds)

    def stepped(self, sequence: Sequence, now: float) -> None:
        """A step may have committed tokens. The ``n`` of one count as an ``n``-th of the time since the one before."""
        stats = sequence.stats
        fresh = stats.generated - stats.measured
        if not fresh:
            return
        if stats.last_token is None:
            self._queue.observe((now if stats.admitted is None else stats.admitted) - sequence.arrived)
            self._first_token.observe(now - sequence.arrived)
        else:
            self._inter_token.observe((now - stats.last_token) / fresh, fresh)
        stats.measured, stats.last_token = stats.generated, now

    def ended(self, sequence: Sequence, now: float) -> None:
        """An answer has come to its own end or to its deadline; how long others lasted says nothing of us."""
        self._end_to_end.observe(now - sequence.arrived)
        self._generation_tokens.observe(sequence.stats.generated)
        if sequence.leader is None:
            self._prompt_tokens.observe(sequence.prompt_tokens)
        for accepted, steps in enumerate(sequence.stats.histogram):
            if steps:
                self._accepted.observe(accepted, steps)

    def take(self) -> Mapping[str, Distribution]:
        """By the names of :data:`heptagram_backend.metric_table.HISTOGRAMS`."""
        return {
            "queue": self._queue.take(),
            "first_token": self._first_token.take(),
            "inter_token": self._inter_token.take(),
            "end_to_end": self._end_to_end.take(),
            "prompt_tokens": self._prompt_tokens.take(),
            "generation_tokens": self._generation_tokens.take(),
            "accepted": self._accepted.take(),
            "planning": self._planning.take(),
        }
