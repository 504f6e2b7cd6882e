"""Who is asked for a draft, in which order, and what the grammar makes of the answer. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.constraint import Grammar
from heptagram_backend.drafts.base import FORCED, LAST_FORCED, Origin, Proposal
from heptagram_backend.sequence import Sequence

_FORCED_BYTES: Final = 1024  # more than seven tokens hold; a long constant is not encoded whole at every step


class Candidates:
    """Draft candidates along one walk; :meth:`next` leaves the matcher advanced by the token it returns.

    ``origins`` are those of all that it returned. ``replaced`` of them stand where the grammar refused another one;
    ``refused`` ended the walk, or were to follow what did. A stop token counts as refused.
    """

    def __init__(self, sequence: Sequence, grammar: Grammar, encode: Callable[[str], list[int]]) -> None:
        self._sequence = sequence
        self._grammar = grammar
        self._encode = encode
        self._queue: deque[tuple[int, Origin]] = deque()
        self.origins: list[Origin] = []
        self.replaced = 0
        self.refused = 0

    def next(self, ahead: list[int], room: int, allowed: NDArray[np.int32] | None) -> int | None:
        if self._queue and self._accept(self._queue[0][0]):
            return self._taken()
        refused = len(self._queue)
        for proposal in self._proposals(ahead, room, allowed):
            if not proposal.tokens:
                continue
            if self._accept(proposal.tokens[0]):
                self.replaced += proposal.replaces or refused > 0
                self._queue = deque(zip(proposal.tokens, proposal.origins, strict=True))
                return self._taken()
            refused = max(refused, len(proposal.tokens))
        self.refused += refused
        return None

    def _proposals(self, ahead: list[int], room: int, allowed: NDArray[np.int32] | None) -> Iterator[Proposal]:
        forced = self._forced_tokens()
        yield Proposal(forced[:-1], FORCED)
        yield self._sequence.drafter.propose(ahead, room, allowed)
        # subtle: the last forced token often merges with the free text behind it, so it is only the last resort.
        yield Proposal(forced[-1:], LAST_FORCED)

    def _taken(self) -> int:
        token, origin = self._queue.popleft()
        self.origins.append(origin)
        return token

    def _forced_tokens(self) -> list[int]:
        if not self._sequence.drafts_forced:
            return []
        text = self._grammar.forced_text()[:_FORCED_BYTES].decode("utf-8", errors="ignore")
        return self._encode(text) if text else []

    def _accept(self, token: int) -> bool:
        # A stop token is never drafted: the bonus row gives it for free, and a finished matcher must not be asked.
        return token not in self._sequence.stop_ids and self._grammar.accept(token)
