r"""Sets of characters, and how one of them is written inside the JSON text of a string.

A grammar works on JSON *text*: between the quotes of a string stand raw characters and escapes. A set of characters of
the *value* is therefore written as a class of raw characters, or that class and the two-character escapes:
``{a, b, "}`` becomes ``(?:[ab]|\\")``. Control characters without a two-character escape cannot be written.

Classes are cut where the first byte of UTF-8 changes its kind, and around blocks (the characters that share all bytes
but the last one or two) of which they hold a part only. XGrammar compiles a range across such a border wrongly:
overlong encodings get in, U+D000 to U+D7FF become a place that cannot be left, and of ``[\\u1000-\\u7abc]`` all of
U+7000 to U+7A7F is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Ranges = tuple[tuple[int, int], ...]

_ESCAPES: Final = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
_UTF8_BORDERS: Final = (0x7F, 0x7FF, 0xFFF, 0xCFFF, 0xFFFF, 0x3FFFF, 0xFFFFF)
EVERYTHING: Final[Ranges] = ((0, 0xD7FF), (0xE000, 0x10FFFF))
_RAW: Final[Ranges] = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))


def union(*sets: Ranges) -> Ranges:
    """All characters of any set, as sorted ranges that neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in sets for pair in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    return union(tuple((max(a, c), min(b, d)) for a, b in left for c, d in right if max(a, c) <= min(b, d)))


def complement(ranges: Ranges) -> Ranges:
    """Everything else, without surrogates."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in union(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= 0x10FFFF:
        gaps.append((start, 0x10FFFF))
    return intersection(tuple(gaps), EVERYTHING)


def of(characters: Iterable[str]) -> Ranges:
    return union(tuple((ord(one), ord(one)) for one in characters))


def raw(ranges: Ranges) -> Ranges:
    """Those that may stand unescaped inside a JSON string."""
    return intersection(ranges, _RAW)


@lru_cache(maxsize=1024)
def to_json_text(ranges: Ranges) -> str:
    """A regular expression of the set inside a JSON string; empty when JSON text cannot hold any of it."""
    unescaped = _write_class(raw(ranges))
    letters = [letter for code, letter in _ESCAPES.items() if intersection(ranges, ((code, code),))]
    if not letters:
        return unescaped
    escaped = r"\\[" + "".join("\\" + letter if letter in '"\\' else letter for letter in letters) + "]"
    return f"(?:{unescaped}|{escaped})" if unescaped else f"(?:{escaped})"


def cut(ranges: Ranges) -> list[tuple[int, int]]:
    """The same characters in ranges that XGrammar compiles rightly."""
    return [piece for low, high in ranges for piece in _cut(low, high)]


def _write_class(ranges: Ranges) -> str:
    pieces = cut(ranges)
    if len(pieces) == 1 and pieces[0][0] == pieces[0][1]:
        return _quote(pieces[0][0])
    return "[" + "".join(_quote(a) if a == b else f"{_quote(a)}-{_quote(b)}" for a, b in pieces) + "]" if pieces else ""


def _cut(low: int, high: int) -> Iterable[tuple[int, int]]:
    for border in _UTF8_BORDERS:
        if low <= border < high:
            yield from _cut_into_blocks(low, border)
            low = border + 1
    yield from _cut_into_blocks(low, high)


def _cut_into_blocks(low: int, high: int) -> Iterable[tuple[int, int]]:
    """Part a range of one UTF-8 length so that no piece crosses a block of which it holds a part only."""
    pieces = [(low, high)]
    for size in (
        () if high <= 0x7F else (0x40,) if high <= 0x7FF else (0x1000,) if high <= 0xFFFF else (0x40000, 0x1000)
    ):
        pieces = [part for piece in pieces for part in _without_ends(*piece, size)]
    return pieces


def _without_ends(low: int, high: int, size: int) -> Iterable[tuple[int, int]]:
    """Cut off the part of a block of ``size`` that the range begins with, and the one that it ends with."""
    head, tail = low | (size - 1), high & -size
    if low % size and head < high:
        yield low, head
        low = head + 1
    if (high + 1) % size and low < tail:
        yield low, tail - 1
        low = tail
    yield low, high


def _quote(code: int) -> str:
    character = chr(code)
    return "\\" + character if character in r"\^$.|?*+()[]{}-/" else character
