"""What proposes draft tokens. A drafter belongs to one sequence and can be wrong at no cost but speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

FORCED: Final = "grammar_forced"
LAST_FORCED: Final = "grammar_forced/last"
"""Sources of the grammar's forced text, and of its last token, which may be half of what comes."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose guess a draft is, and the chance that the drafter itself gave it once all before it are accepted."""

    source: str
    chance: float | None = None

    @property
    def is_forced(self) -> bool:
        return self.source in (FORCED, LAST_FORCED)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that may follow one another, by ``source``, with the drafter's own ``chances`` for them or none at all.

    ``replaces``: an illegal candidate made room for the first one.
    """

    tokens: Sequence[int] = ()
    source: str = ""
    chances: Sequence[float] = ()
    replaces: bool = False

    @property
    def origins(self) -> tuple[Origin, ...]:
        """One a token."""
        chances = self.chances or (None,) * len(self.tokens)
        return tuple(Origin(self.source, chance) for chance in chances)


NOTHING: Final = Proposal()


class Drafter(Protocol):
    def extend(self, tokens: Sequence[int]) -> None:
        """The sequence went on by these tokens (the prompt first, then what is committed)."""

    def seat(self, slot: int) -> None:
        """A step begins, for which the sequence has this cache slot; :meth:`propose` may follow."""

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
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

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        del ahead, limit, allowed
        return NOTHING


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

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        replaces = False
        for drafter in self._drafters:
            proposal = drafter.propose(ahead, limit, allowed)
            if proposal.tokens and permits(allowed, proposal.tokens[0]):
                return replace(proposal, replaces=True) if replaces else proposal
            replaces = replaces or bool(proposal.tokens)
        return NOTHING
