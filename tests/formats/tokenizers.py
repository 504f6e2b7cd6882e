"""The tokenizers of Qwen3 and Llama 3.2, made of the ranks that packages ship and of their control tokens.

The ranks are those of ``dashscope`` and ``llama-models``. Names and ids of the control tokens are those of Qwen3's and
Llama 3.2's ``tokenizer_config.json``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heptagram_backend.formats import load_format
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.vocabulary import _byte_of_character
from heptagram_backend.xgrammar_impl import XGrammarFactory

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN: tuple[str, ...] = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
_QWEN_SHOWN = frozenset(QWEN[14:])  # not special: the markup of calls and reasoning is ordinary text
_LLAMA = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
)
LLAMA: tuple[str, ...] = (*_LLAMA, *(f"<|reserved_special_token_{number}|>" for number in range(3, 248)))
EOS = {"qwen3": "<|im_end|>", "qwen3_xml": "<|im_end|>", "llama3_json": "<|eot_id|>"}


@cache
def tokenizer(format_name: str) -> CheckpointTokenizer:
    return _tokenizer("llama" if format_name == "llama3_json" else "qwen")


@cache
def token_bytes(format_name: str) -> tuple[bytes | None, ...]:
    return tuple(tokenizer(format_name).token_bytes(load_format(format_name).markers))


@cache
def factory(format_name: str) -> XGrammarFactory:
    if format_name == "qwen3_xml":
        return factory("qwen3")  # they have one vocabulary
    pieces = token_bytes(format_name)
    return XGrammarFactory(pieces, len(pieces), [eos(format_name)])


def eos(format_name: str) -> int:
    token = tokenizer(format_name).token_id(EOS[format_name])
    assert token is not None
    return token


@cache
def _tokenizer(family: str) -> CheckpointTokenizer:
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), family)
        return CheckpointTokenizer(Path(folder))


def write_checkpoint(folder: Path, family: str) -> None:
    """The tokenizer's part of a checkpoint of ``qwen`` or ``llama``, without a chat template."""
    qwen = family == "qwen"
    ranks = (
        _shipped("dashscope", "resources/qwen.tiktoken") if qwen else _shipped("llama_models", "llama3/tokenizer.model")
    )
    control, shown = (QWEN, _QWEN_SHOWN) if qwen else (LLAMA, frozenset[str]())
    split = _SPLIT.format(digits="" if qwen else "{1,3}")
    made = _made_of(ranks, control, shown, split, normal=qwen)
    (folder / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    bos = {"bos_token": "<|begin_of_text|>"} if not qwen else {}
    config = {**bos, "eos_token": "<|im_end|>" if qwen else "<|eot_id|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _shipped(package: str, name: str) -> list[bytes]:
    """The tokens in the order of their ids."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    lines = (Path(spec.origin).parent / name).read_bytes().splitlines()
    return [base64.b64decode(line.split()[0]) for line in lines if line]


def _made_of(
    ranks: Sequence[bytes], control: Sequence[str], shown: frozenset[str], split: str, *, normal: bool
) -> dict[str, Any]:
    characters = {byte: character for character, byte in _byte_of_character().items()}
    texts = ["".join(characters[byte] for byte in token) for token in ranks]
    pieces = [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ]
    return {
        "version": "1.0",
        "added_tokens": [
            {
                **{"id": len(ranks) + place, "content": text, "special": text not in shown},
                **{"single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
            }
            for place, text in enumerate(control)
        ],
        "normalizer": {"type": "NFC"} if normal else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {text: rank for rank, text in enumerate(texts)},
            "merges": [list(pair) for pair in _merges(texts)],
            "ignore_merges": True,
        },
    }


def _merges(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every way in which two tokens make a third, in the order of the third's rank: what ranks alone stand for."""
    ranks = {text: rank for rank, text in enumerate(texts)}
    for text in texts:
        splits = ((text[:place], text[place:]) for place in range(1, len(text)))
        pairs = [(left, right) for left, right in splits if left in ranks and right in ranks]
        yield from sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
