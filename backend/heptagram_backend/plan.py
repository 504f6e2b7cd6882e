"""Draft walk and mask planning on the host: what is proposed, and the packed rows it is verified under.

Drafts must be final before the forward, masks only before their rows are read behind it. So a constrained sequence is
walked twice: for drafts, asking the matcher but filling nothing, and later along those drafts that are worth a row,
filling the masks, which is what costs. At each place of the first walk stand the grammar's forced text in its canonical
tokens, or what the drafter proposes, as long as it is legal. A drafter that reads masks has one walk for both. Each
walk is rolled back exactly, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from heptagram_backend.candidates import Candidates
from heptagram_backend.constraint import Grammar
from heptagram_backend.drafts.base import NOTHING, Origin
from heptagram_backend.errors import EngineError
from heptagram_backend.masks import ALL_TOKENS, MaskPool, Placed
from heptagram_backend.sequence import Sequence

ROWS = 8
MAX_DRAFTS = ROWS - 1
_ALL: Final = Placed(ALL_TOKENS, 0)
_NOTHING: Final = "the grammar reached a state from which no token is allowed"


@dataclass(frozen=True, slots=True)
class Draft:
    """``tokens`` (at most 7), the ``origins`` of each, and ``masks`` for each of them and for the bonus row.

    ``masks`` is empty while they are still to be filled. ``replaced`` drafts stand where the grammar refused another
    one, ``cut_by_grammar`` were refused for good, and what was to follow them; ``cut_by_width`` were not worth a row.
    """

    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    masks: tuple[Placed, ...] = ()
    replaced: int = 0
    cut_by_grammar: int = 0
    cut_by_width: int = 0

    def narrowed(self, width: int) -> Draft:
        """The first ``width`` of them alone. Masks that were filled for the others are still those of their rows."""
        if width == len(self.tokens):
            return self
        cut = self.cut_by_width + len(self.tokens) - width
        return replace(self, tokens=self.tokens[:width], origins=self.origins[:width], cut_by_width=cut)

    @property
    def rows(self) -> tuple[int, ...]:
        """A pool index for each token and for the bonus row."""
        return tuple(mask.row for mask in self._verified)

    @property
    def masked_rows(self) -> int:
        return sum(mask.row != ALL_TOKENS for mask in self._verified)

    @property
    def mask_hits(self) -> int:
        """Of the masked rows, those that lay on the device already."""
        return sum(mask.row != ALL_TOKENS and not mask.uploaded for mask in self._verified)

    @property
    def mask_bytes(self) -> int:
        """What was uploaded, for rows that are not verified too."""
        return sum(mask.uploaded for mask in self.masks)

    @property
    def _verified(self) -> tuple[Placed, ...]:
        return self.masks[: len(self.tokens) + 1]


class Planner:
    """Plans one sequence at a time. ``encode`` turns text into the tokenizer's canonical tokens."""

    def __init__(self, *, pool: MaskPool, words: int, encode: Callable[[str], list[int]]) -> None:
        self.pool = pool
        self._encode = encode
        self._row = np.zeros(words, dtype=np.int32)

    def draft(self, sequence: Sequence) -> Draft:
        """Drafts of the next step, and their masks if nothing need be filled for them. The matcher is left as it was.

        Raises:
            EngineError: the grammar allows nothing at all here.
        """
        limit = max(0, min(sequence.request.num_speculative_tokens, MAX_DRAFTS, sequence.remaining - 1))
        if sequence.grammar is None:
            proposal = sequence.drafter.propose((), limit) if limit else NOTHING
            return Draft(tuple(proposal.tokens), proposal.origins, (_ALL,) * (len(proposal.tokens) + 1))
        walk = self._walk if sequence.drafts_by_mask else self._look_ahead
        return walk(sequence, sequence.grammar, limit)

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
                    # subtle: it did on the walk without masks, so the mask just filled is not to be trusted either.
                    del masks[max(1, accepted) :]
                    break
                accepted += 1
            else:
                masks.append(_ALL)  # the call is complete, the text behind it is free
        finally:
            grammar.rollback(accepted)
        if not masks:
            raise EngineError(_NOTHING)
        left = len(masks) - 1
        return replace(
            draft,
            tokens=draft.tokens[:left],
            origins=draft.origins[:left],
            masks=tuple(masks),
            cut_by_grammar=draft.cut_by_grammar + len(draft.tokens) - left,
        )

    def _look_ahead(self, sequence: Sequence, grammar: Grammar, limit: int) -> Draft:
        """The drafts alone."""
        source = Candidates(sequence, grammar, self._encode)
        tokens: list[int] = []
        try:
            while len(tokens) < limit and not _is_left(sequence, grammar):
                token = source.next(tokens, limit - len(tokens), None)
                if token is None:
                    break
                tokens.append(token)
        finally:
            grammar.rollback(len(tokens))
        return _drafted(source, tokens)

    def _walk(self, sequence: Sequence, grammar: Grammar, limit: int) -> Draft:
        source = Candidates(sequence, grammar, self._encode)
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
        return _drafted(source, tokens, masks)

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


def _drafted(source: Candidates, tokens: list[int], masks: Iterable[Placed] = ()) -> Draft:
    """What became of a walk; ``tokens`` without those that were taken back."""
    taken_back = len(source.origins) - len(tokens)
    return Draft(
        tokens=tuple(tokens),
        origins=tuple(source.origins[: len(tokens)]),
        masks=tuple(masks),
        replaced=source.replaced,
        cut_by_grammar=source.refused + taken_back,
    )
