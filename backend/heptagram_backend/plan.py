"""Draft walk and mask planning on the host: what is proposed, and the packed rows it is verified under.

On a constrained sequence one walk does both. At each row the matcher is filled, then asked for the next draft: the
grammar's forced text in its canonical tokens first, then what the drafter proposes, as long as it is legal. The rows
filled on the walk are the verify masks; nothing is filled twice. The walk is rolled back exactly, whatever happens.

Drafts must be final before the forward, masks only before their rows are read behind it. So where a device leaves the
host free, the walk is made twice: for drafts, asking the matcher but filling nothing, and under the forward once more
along these drafts, filling the masks, which is what costs. A drafter that reads masks has the one walk all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.constraint import Grammar
from heptagram_backend.errors import EngineError
from heptagram_backend.masks import ALL_TOKENS, MaskPool, Placed
from heptagram_backend.sequence import Sequence

ROWS = 8
MAX_DRAFTS = ROWS - 1
_ALL: Final = Placed(ALL_TOKENS, 0)
_NOTHING: Final = "the grammar reached a state from which no token is allowed"
_FORCED_BYTES = 1024  # more than seven tokens hold; a long constant is not encoded whole at every step


@dataclass(frozen=True, slots=True)
class Draft:
    """``tokens`` (at most 7), and in ``rows`` one pool index for each of them and for the bonus row.

    ``rows`` is empty while masks are still to be filled. ``forced`` holds the places of those drafts that are the
    grammar's forced text. Of the ``masked_rows``, ``mask_hits`` lay on the device already, and ``mask_bytes`` were
    uploaded for the others.
    """

    tokens: tuple[int, ...]
    rows: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0


class Planner:
    """Plans one sequence at a time. ``encode`` turns text into the tokenizer's canonical tokens.

    With ``masks_later`` the masks of constrained sequences are left to :meth:`mask`.
    """

    def __init__(
        self, *, pool: MaskPool, words: int, encode: Callable[[str], list[int]], masks_later: bool = False
    ) -> None:
        self.pool = pool
        self._masks_later = masks_later
        self._encode = encode
        self._row = np.zeros(words, dtype=np.int32)

    def draft(self, sequence: Sequence) -> Draft:
        """Drafts of the next step, and their masks if they are not left for later. The matcher is left as it was.

        Raises:
            EngineError: the grammar allows nothing at all here.
        """
        limit = max(0, min(sequence.request.num_speculative_tokens, MAX_DRAFTS, sequence.remaining - 1))
        if sequence.grammar is None:
            tokens = tuple(sequence.drafter.propose((), limit)) if limit else ()
            return Draft(tokens, (ALL_TOKENS,) * (len(tokens) + 1))
        if self._masks_later and not sequence.drafts_by_mask:
            return self._look_ahead(sequence, sequence.grammar, limit)
        return self._walk(sequence, sequence.grammar, limit)

    def mask(self, sequence: Sequence, draft: Draft) -> Draft:
        """``draft`` with its masks, cut before a token behind which none is allowed. The matcher is left as it was.

        Raises:
            EngineError: as :meth:`draft`.
        """
        assert sequence.grammar is not None
        grammar, masks, accepted = sequence.grammar, list[Placed](), 0
        try:
            while not _is_left(sequence, grammar):
                if (mask := self._mask(grammar)) is None:
                    break
                masks.append(mask)
                if accepted == len(draft.tokens):
                    break
                if not grammar.accept(draft.tokens[accepted]):
                    raise EngineError(f"the grammar refused the draft {draft.tokens[accepted]} that it allowed before")
                accepted += 1
            else:
                masks.append(_ALL)  # the call is complete, the text behind it is free
        finally:
            grammar.rollback(accepted)
        if not masks:
            raise EngineError(_NOTHING)
        forced = tuple(place for place in draft.forced if place < len(masks) - 1)
        return _masked(draft.tokens[: len(masks) - 1], masks, forced)

    def _look_ahead(self, sequence: Sequence, grammar: Grammar, limit: int) -> Draft:
        """The drafts alone."""
        source = _Candidates(sequence, grammar, self._encode)
        tokens: list[int] = []
        try:
            while len(tokens) < limit and not _is_left(sequence, grammar):
                token = source.next(tokens, limit - len(tokens), None)
                if token is None:
                    break
                tokens.append(token)
        finally:
            grammar.rollback(len(tokens))
        return Draft(tuple(tokens), forced=tuple(source.forced))

    def _walk(self, sequence: Sequence, grammar: Grammar, limit: int) -> Draft:
        source = _Candidates(sequence, grammar, self._encode)
        tokens: list[int] = []
        masks: list[Placed] = []
        try:
            while True:
                if _is_left(sequence, grammar):
                    masks.append(_ALL)  # the call is complete, the text behind it is free
                    break
                if (mask := self._mask(grammar)) is None:
                    self._retreat(grammar, tokens)
                    break
                masks.append(mask)
                if len(tokens) == limit:
                    break
                token = source.next(tokens, limit - len(tokens), self._row if mask.row != ALL_TOKENS else None)
                if token is None:
                    break
                tokens.append(token)
        finally:
            grammar.rollback(len(tokens))
        return _masked(tuple(tokens), masks, tuple(source.forced))

    def _mask(self, grammar: Grammar) -> Placed | None:
        """Where the next mask lies; ``None`` where no token is allowed."""
        if not grammar.fill(self._row):
            return _ALL
        return self.pool.place(self._row) if self._row.any() else None

    @staticmethod
    def _retreat(grammar: Grammar, tokens: list[int]) -> None:
        """Take back a draft behind which no token is allowed: a draft must never be what ends a request."""
        if not tokens:
            raise EngineError(_NOTHING)
        grammar.rollback(1)
        tokens.pop()


def _is_left(sequence: Sequence, grammar: Grammar) -> bool:
    """The call is complete, and the text behind it is free."""
    return sequence.leaves_grammar and grammar.completed


def _masked(tokens: tuple[int, ...], masks: list[Placed], forced: tuple[int, ...]) -> Draft:
    masked = [mask for mask in masks if mask.row != ALL_TOKENS]
    return Draft(
        tokens=tokens,
        rows=tuple(mask.row for mask in masks),
        forced=forced,
        masked_rows=len(masked),
        mask_hits=sum(mask.uploaded == 0 for mask in masked),
        mask_bytes=sum(mask.uploaded for mask in masked),
    )


class _Candidates:
    """Draft candidates along one walk; :meth:`next` leaves the matcher advanced by the token it returns."""

    def __init__(self, sequence: Sequence, grammar: Grammar, encode: Callable[[str], list[int]]) -> None:
        self._sequence = sequence
        self._grammar = grammar
        self._encode = encode
        self._queue: deque[int] = deque()
        self._queue_is_forced = False
        self.forced: list[int] = []

    def next(self, ahead: list[int], room: int, allowed: NDArray[np.int32] | None) -> int | None:
        if self._queue and self._accept(token := self._queue.popleft()):
            return self._taken(token, len(ahead))
        self._queue.clear()
        forced = self._forced_tokens()
        # subtle: the last forced token often merges with the free text behind it, so it is only the last resort.
        propose = self._sequence.drafter.propose
        runs = ((forced[:-1], True), (propose(ahead, room, allowed), False), (forced[-1:], True))
        for run, is_forced in runs:
            if run and self._accept(run[0]):
                self._queue.extend(run[1:])
                self._queue_is_forced = is_forced
                return self._taken(run[0], len(ahead))
        return None

    def _taken(self, token: int, place: int) -> int:
        if self._queue_is_forced:
            self.forced.append(place)
        return token

    def _forced_tokens(self) -> list[int]:
        if not self._sequence.drafts_forced:
            return []
        text = self._grammar.forced_text()[:_FORCED_BYTES].decode("utf-8", errors="ignore")
        return self._encode(text) if text else []

    def _accept(self, token: int) -> bool:
        # A stop token is never drafted: the bonus row gives it for free, and a finished matcher must not be asked.
        return token not in self._sequence.stop_ids and self._grammar.accept(token)
