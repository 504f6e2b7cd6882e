"""What masks and tokens cost under a grammar: tried before a request runs under it, and watched while one does.

A grammar that can be read in many ways makes a mask take seconds, and while it is made every request waits. No grammar
library.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from typing import Final

import numpy as np

from heptagram_backend.constraint import Grammar
from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes

_STEPS: Final = 24
_LIMIT_S: Final = 0.25  # of processor time, so that a busy machine refuses no more than an idle one
_ALLOWANCE_S: Final = 2.0
_PER_OPERATION_S: Final = 0.005  # a thousand times the usual


class MatchingBudget:
    """Processor time of one request's matcher. Its cost may grow with the text: ``([a-z]+,)+`` without an anchor may
    begin at each character, so the 400th takes 1.5 ms; rules of a caller's own can be far worse."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _ALLOWANCE_S

    def charge(self, began: float) -> None:
        """Take what an operation used that began at ``time.thread_time()``.

        Raises:
            RequestError: ``grammar_too_costly``, this request would hold up all others.
        """
        self._left += _PER_OPERATION_S - (time.thread_time() - began)
        if self._left < 0:
            raise RequestError(
                "each further token under this constraint takes longer, because what was written can be read in ever "
                "more ways; give a `pattern` its anchors ^ and $, and write repetitions inside repetitions so that "
                "each round ends where the next begins",
                code=codes.GRAMMAR_TOO_COSTLY,
            )
        self._left = min(self._left, _ALLOWANCE_S)


def require_affordable(grammar: Grammar, *, width: int, ends: Collection[int]) -> None:
    """Walk at random through ``grammar``, which is at its start, and time its masks.

    Args:
        grammar: a matcher of the caller's grammar; it is advanced.
        width: V, the width of a mask in tokens.
        ends: the stop tokens, which are not taken.

    Raises:
        RequestError: ``grammar_too_costly``, one mask took longer than 250 ms.
    """
    choose = random.Random(0)
    row = np.zeros(-(-width // 32), np.int32)
    for _ in range(_STEPS):
        began = time.thread_time()
        limited = grammar.fill(row)
        if time.thread_time() - began > _LIMIT_S:
            raise RequestError(
                "the grammar can be read in too many ways, one step of it takes longer than a model's; write it so "
                "that each part ends where the next begins",
                code=codes.GRAMMAR_TOO_COSTLY,
            )
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")) if limited else np.arange(width)
        allowed = np.setdiff1d(allowed, list(ends))
        if not len(allowed) or not grammar.accept(int(choose.choice(allowed))):
            return
