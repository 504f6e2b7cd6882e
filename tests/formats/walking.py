"""An adversarial model over any vocabulary: random tokens under the mask, with a taste for markup and for endings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.xgrammar_impl import XGrammarFactory

MAX_TOKENS = 300
Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``endings`` are texts, in tokens, that end something; ``closing`` holds pieces that do, and ``markup`` what the
    adversary likes to write."""

    token_bytes: Sequence[bytes | None]
    factory: XGrammarFactory
    eos: int
    endings: tuple[tuple[int, ...], ...]
    closing: bytes
    markup: bytes
    _within: dict[bytes, Tokens] = field(default_factory=dict)

    def within(self, text: bytes) -> Tokens:
        """The tokens that are a part of ``text``."""
        if text not in self._within:
            found = [token for token, piece in enumerate(self.token_bytes) if piece and piece in text]
            self._within[text] = np.array(found, np.int64)
        return self._within[text]


def walk(vocabulary: Vocabulary, spec: ConstraintSpec, seed: int, bias: float) -> list[int] | None:
    """One answer without its end; ``None`` when it did not end within ``MAX_TOKENS``."""
    adversary = _Adversary(vocabulary, seed, bias)
    grammar = vocabulary.factory.matcher(spec)
    row = np.zeros(-(-len(vocabulary.token_bytes) // 32), np.int32)
    answer: list[int] = []
    try:
        while len(answer) < MAX_TOKENS:
            if not grammar.fill(row):
                row[:] = -1
            assert row.any()
            answer.append(adversary.token(row))
            assert grammar.accept(answer[-1])
            if answer[-1] == vocabulary.eos:
                return answer[:-1]
        return None
    finally:
        grammar.close()


class _Adversary:
    """Draws allowed tokens; with ``bias`` it rather ends what is open, and then writes that ending to its end."""

    def __init__(self, vocabulary: Vocabulary, seed: int, bias: float) -> None:
        self._vocabulary = vocabulary
        self._dice = random.Random(seed)
        self._draw = np.random.default_rng(seed)
        self._bias = bias
        self._ending: list[int] = []

    def token(self, row: NDArray[np.int32]) -> int:
        def allowed(tokens: Tokens) -> Tokens:
            return tokens[np.flatnonzero(row[tokens // 32] >> (tokens % 32) & 1)]

        if allowed(np.array([self._vocabulary.eos])).size and self._dice.random() < 0.5:
            return self._vocabulary.eos
        chance = self._dice.random()
        if not self._ending and chance < self._bias:
            self._ending = list(self._dice.choice(self._vocabulary.endings))
        if self._ending and allowed(np.array(self._ending[:1])).size:
            return self._ending.pop(0)
        self._ending = []
        taste = self._vocabulary.closing if chance < self._bias else self._vocabulary.markup if chance > 0.85 else b""
        if (found := allowed(self._vocabulary.within(taste))).size:
            return int(self._draw.choice(found))
        if (found := allowed(self._draw.integers(0, len(self._vocabulary.token_bytes), 64))).size:
            return int(found[0])
        words = np.flatnonzero(row)
        return int(self._draw.choice(allowed((words[:, None] * 32 + np.arange(32)).ravel())))


def accepts(vocabulary: Vocabulary, spec: ConstraintSpec, text: str) -> bool:
    """Is ``text`` a whole answer?"""
    return _fits(vocabulary, spec, text, lambda grammar: grammar.completed and grammar.accept(vocabulary.eos))


def begins(vocabulary: Vocabulary, spec: ConstraintSpec, text: str) -> bool:
    """Can an answer begin with ``text``?"""
    return _fits(vocabulary, spec, text, lambda _: True)


def _fits(vocabulary: Vocabulary, spec: ConstraintSpec, text: str, then: Callable[..., bool]) -> bool:
    grammar = vocabulary.factory.matcher(spec)
    try:
        return (not text or grammar.accept_text(text.encode())) and then(grammar)
    finally:
        grammar.close()
