"""The grammar factory and a JSON Schema library side by side: what the first lets through, the second must accept."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.grammars import load_grammar_factory

_STOP = 256
_VOCABULARY = [bytes([byte]) for byte in range(256)] + [None]


class Oracle:
    """Compiles walked schemas for a vocabulary of single bytes, where every text is reachable."""

    def __init__(self) -> None:
        self._factory = load_grammar_factory(_VOCABULARY, vocab_width=_STOP + 1, stop_token_ids=[_STOP])

    def matcher(self, walked: Any) -> Grammar:
        return self._factory.matcher(ConstraintSpec("json_schema", json.dumps(walked)))

    def accepts(self, walked: Any, value: Any) -> bool:
        """Is ``value`` generated, as canonical JSON with raw characters?"""
        matcher = self.matcher(walked)
        return matcher.accept_text(json.dumps(value, ensure_ascii=False).encode()) and matcher.completed

    def sample(self, walked: Any, chance: random.Random, *, steps: int = 400) -> str | None:
        """A text of the grammar by a random walk under its mask; ``None`` when it did not end in time.

        Raises:
            AssertionError: the walk came to a place where nothing is allowed.
            UnicodeDecodeError: the text is no UTF-8.
        """
        matcher = self.matcher(walked)
        row = np.zeros(-(-(_STOP + 1) // 32), np.int32)
        text = bytearray()
        for step in range(steps):
            allowed: list[int] = list(range(_STOP + 1))
            if matcher.fill(row):
                allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[: _STOP + 1]).tolist()
            assert allowed, f"nothing is allowed after {bytes(text)!r}"
            token = _choose(allowed, chance, hurry=step > steps // 2)
            assert matcher.accept(token), f"{token} was allowed after {bytes(text)!r}"
            if token == _STOP:
                return text.decode()
            text.append(token)
        return None


def _choose(allowed: list[int], chance: random.Random, *, hurry: bool) -> int:
    """Closing bytes come often, and when time runs out nearly always."""
    closing = [token for token in (_STOP, 0x22, 0x5D, 0x7D) if token in allowed]
    if closing and chance.random() < (0.97 if hurry else 0.25):
        return closing[0]
    readable = [token for token in allowed if 0x20 <= token < 0x7F]
    return chance.choice(readable if readable and chance.random() < 0.8 else allowed)


def valid(schema: Any, value: Any) -> bool:
    """By the other library, with formats asserted."""
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker).is_valid(value)


def strict_loads(text: str) -> Any:
    """Read JSON as strictly as RFC 8259 asks for.

    Raises:
        ValueError: no JSON.
    """
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
