"""The real grammar over DeepSeek's 129,280 tokens, in the way the engine makes it."""

from __future__ import annotations

from functools import cache

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.formats.deepseek_v4 import DeepSeekV4
from heptagram_backend.xgrammar_impl import XGrammarFactory
from tests.formats.deepseek.tokenizers import tokenizer

EOS = 1


@cache
def token_bytes() -> tuple[bytes | None, ...]:
    return tuple(tokenizer("v4").token_bytes(DeepSeekV4.markers))


@cache
def factory() -> XGrammarFactory:
    return XGrammarFactory(token_bytes(), len(token_bytes()), [EOS])


def accepts(spec: ConstraintSpec, text: str) -> bool:
    """Is ``text`` a whole answer?"""
    grammar = factory().matcher(spec)
    try:
        return (not text or grammar.accept_text(text.encode())) and grammar.completed and grammar.accept(EOS)
    finally:
        grammar.close()


def begins(spec: ConstraintSpec, text: str) -> bool:
    """Can an answer begin with ``text``?"""
    grammar = factory().matcher(spec)
    try:
        return grammar.accept_text(text.encode())
    finally:
        grammar.close()
