"""What proposes draft tokens. A drafter belongs to one sequence and can be wrong at no cost but speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Drafter(Protocol):
    def extend(self, tokens: Sequence[int]) -> None:
        """The sequence went on by these tokens (the prompt first, then what is committed)."""

    def seat(self, slot: int) -> None:
        """A step begins, for which the sequence has this cache slot; :meth:`propose` may follow."""

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Sequence[int]:
        """At most ``limit`` tokens that may follow the sequence and then ``ahead``.

        ``allowed`` is the packed row of what the first of them may be; one that is not allowed ends the draft.
        """


def permits(allowed: NDArray[np.int32] | None, token: int) -> bool:
    """The packed row has the bit of ``token``; without a row everything is permitted."""
    return allowed is None or bool(allowed[token >> 5] >> (token & 31) & 1)


class NoDrafts:
    """The null drafter: plain decoding, one token a step."""

    def extend(self, tokens: Sequence[int]) -> None:
        del tokens

    def seat(self, slot: int) -> None:
        del slot

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Sequence[int]:
        del ahead, limit, allowed
        return ()


class InOrder:
    """The first of several drafters that proposes something that is allowed."""

    def __init__(self, *drafters: Drafter) -> None:
        self._drafters = drafters

    def extend(self, tokens: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.extend(tokens)

    def seat(self, slot: int) -> None:
        for drafter in self._drafters:
            drafter.seat(slot)

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Sequence[int]:
        for drafter in self._drafters:
            proposed = drafter.propose(ahead, limit, allowed)
            if proposed and permits(allowed, proposed[0]):
                return proposed
        return ()
