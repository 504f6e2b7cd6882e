"""Prompt lookup: what followed the last occurrence of the current n-gram is proposed again.

After "Prompt Lookup Decoding" (A. Saxena, 2023); the longest n-gram, and of its places the latest, wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.drafts.base import NOTHING, Proposal

MAX_NGRAM = 3


class PromptLookup:
    """An index of every n-gram (1 to 3 tokens) of one sequence to the place that follows its last occurrence."""

    def __init__(self, max_ngram: int = MAX_NGRAM, min_ngram: int = 1) -> None:
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            # An n-gram enters the index with the token that follows it, so that a hit always has a continuation.
            end = len(self._tokens)
            for size in range(1, min(self._max_ngram, end) + 1):
                self._after[tuple(self._tokens[end - size :])] = end
            self._tokens.append(token)

    def seat(self, slot: int) -> None:
        del slot

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        del allowed
        tail = [*self._tokens[-self._max_ngram :], *ahead][-self._max_ngram :]
        for size in range(len(tail), self._min_ngram - 1, -1):
            place = self._after.get(tuple(tail[-size:]))
            if place is not None:
                return Proposal(self._tokens[place : place + limit], f"prompt_lookup/{size}")
        return NOTHING
