"""Drafts from a function: for tests that need a drafter which is always right, always wrong or hostile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.drafts.base import Proposal

Script = Callable[[Sequence[int], int], Sequence[int]]


class Scripted:
    """Asks ``script(tokens so far, limit)``."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tokens: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)

    def seat(self, slot: int) -> None:
        del slot

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        del allowed
        return Proposal(self._script((*self._tokens, *ahead), limit)[:limit], "scripted")
