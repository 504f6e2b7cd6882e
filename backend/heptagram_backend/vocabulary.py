"""The bytes of each token, read off ``tokenizer.json``: what a detokenizer and a grammar need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from functools import cache
from typing import Any, Final

from heptagram_backend.errors import ReleaseError

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_texts(source: Mapping[str, Any], *, size: int, silent: Set[int]) -> list[bytes | None]:
    """Bytes of the ids ``0 .. size - 1`` of the tokenizer ``source`` (the content of ``tokenizer.json``).

    ``None`` for ids in ``silent`` and for ids without a token. Added tokens that are not silent are their own text.

    Raises:
        ReleaseError: neither a byte-level vocabulary (GPT-2's) nor one with byte fallback (SentencePiece's).
    """
    decoder = json.dumps(source.get("decoder"))
    if '"ByteLevel"' in decoder:
        read = _byte_level
    elif '"ByteFallback"' in decoder:
        read = _byte_fallback
    else:
        raise ReleaseError("checkpoint: tokenizer.json must be byte-level or have byte fallback to be constrained")
    texts: list[bytes | None] = [None] * size
    for text, token in _entries(source["model"]["vocab"]):
        texts[token] = read(text)
    for added in source.get("added_tokens", []):
        texts[added["id"]] = str(added["content"]).encode()
    for token in silent:
        texts[token] = None
    return texts


def _entries(vocab: Any) -> list[tuple[str, int]]:
    if isinstance(vocab, dict):
        return list(vocab.items())
    return [(entry[0], token) for token, entry in enumerate(vocab)]  # unigram: [text, score] by id


def _byte_level(text: str) -> bytes | None:
    table = _byte_of_character()
    try:
        return bytes(table[character] for character in text)
    except KeyError:
        return None  # an unused entry that no text encodes to


def _byte_fallback(text: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(text):
        return bytes([int(match[1], 16)])
    return text.replace("\u2581", " ").encode()


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others as the characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
