r"""Grammars that a caller wrote: regular expressions and lists of texts as EBNF, EBNF made safe. No grammar library.

XGrammar 0.2.7 reads a look-ahead and does not hold it, takes macros with rules of their own, compiles a character range
across a border of UTF-8's lengths into overlong forms, so that the answer would not be text, and reads a counted rule
that is nothing but another count as one: ``([a]{2}){0,1}`` takes ``a``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from heptagram_backend.ebnf import LITERAL_OR_CLASS, Rules, literal, unambiguous
from heptagram_backend.errors import RequestError
from heptagram_backend.schema import charset
from heptagram_backend.schema.charset import Ranges
from heptagram_backend.schema.regex import Chars, Choice, Node, Repeat, Sequence
from heptagram_wire import errors as codes

_MACRO: Final = re.compile(r"[\w.-]\(")
_LONE_COUNT: Final = re.compile(r"\(*([\w.-]+)\{(\d+), (-?\d+)\}\)*")
_ESCAPED: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "b": "\b", "a": "\a", "e": "\x1b", "0": "\0"}


def of_choices(texts: Iterable[str]) -> str:
    """EBNF of exactly one of ``texts``."""
    return f"root ::= {' | '.join(map(literal, texts))}\n"


def of_regex(tree: Node) -> str | None:
    """EBNF of a regular expression that matches the whole text; ``None`` when nothing matches it."""
    body = _body(tree)
    return None if body is None else f"root ::= {body}\n"


def tame(rules: Rules) -> Rules:
    """The rules of a caller's grammar, as the library prints them, with every character class safe.

    Raises:
        RequestError: it holds what cannot be enforced.
    """
    for body in rules.values():
        bare = LITERAL_OR_CLASS.sub("", body)
        if "(=" in bare:
            raise _refused("a look-ahead `(= ...)` is not enforced; leave it out")
        if _MACRO.search(bare):
            raise _refused("macros such as `Regex(...)` are not supported; write rules")
    return {name: _parted(LITERAL_OR_CLASS.sub(_safe, body)) for name, body in rules.items()}


def _parted(body: str) -> str:
    """A rule that is one count alone, with its first round written out."""
    match = _LONE_COUNT.fullmatch(body)
    if match is None:
        return body
    item, low, high = match[1], int(match[2]), int(match[3])
    if high == 0:
        return '("")'
    rest = f"{item}{{{max(low - 1, 0)}, {high - 1 if high > 0 else -1}}}"
    rounds = f"({item} {rest})" if high != 1 else f"({item})"
    return rounds if low else f'("" | {rounds})'


def _body(tree: Node) -> str | None:
    if isinstance(tree, Chars):
        return class_of(tree.ranges) if tree.ranges else None
    if isinstance(tree, Sequence):
        parts = [_body(item) for item in tree.items]
        return None if None in parts else "(" + (" ".join(part for part in parts if part) or '""') + ")"
    if isinstance(tree, Choice):
        options = [text for option in tree.options if (text := _body(option)) is not None]
        return f"({' | '.join(options)})" if options else None
    assert isinstance(tree, Repeat), "anchors are read by the parser"
    item = None if tree.high == 0 else _body(tree.item)
    if item is None:
        return '""' if tree.low == 0 else None
    if tree.high is None and tree.low <= 1:
        return f"({item})" + ("+" if tree.low else "*")
    return f"({item}){{{tree.low},{'' if tree.high is None else tree.high}}}"


def class_of(ranges: Ranges) -> str:
    """One character of a set."""
    pieces = charset.cut(ranges)
    return "[" + "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in pieces) + "]"


def _code(code: int) -> str:
    return rf"\u{code:04x}" if code <= 0xFFFF else rf"\U{code:08x}"


def _safe(match: re.Match[str]) -> str:
    text = match[0]
    if text.startswith('"'):
        return unambiguous(text)
    negated = text.startswith("[^")
    listed = _ranges(text[2 if negated else 1 : -1])
    ranges = charset.complement(listed) if negated else charset.intersection(listed, charset.EVERYTHING)
    if not ranges:
        raise _refused("a character class holds no character; leave it out")
    return class_of(ranges)


def _ranges(inside: str) -> Ranges:
    """The characters of a printed class, without its brackets; a dash of its own is printed as ``\\-``."""
    units: list[str | None] = []  # None is the dash of a range
    place = 0
    while place < len(inside):
        match = _ESCAPED.match(inside, place)
        if match is None:
            units.append(None if inside[place] == "-" else inside[place])
        else:
            digits = match[1] or match[2] or match[3]
            units.append(chr(int(digits, 16)) if digits else _CONTROL.get(match[4], match[4]))
        place = match.end() if match else place + 1
    pairs: list[tuple[int, int]] = []
    for index, unit in enumerate(units):
        if unit is None:
            continue
        after_dash = index >= 2 and units[index - 1] is None
        if after_dash:
            pairs[-1] = (pairs[-1][0], ord(unit))
        else:
            pairs.append((ord(unit), ord(unit)))
    return charset.union(tuple(pairs))


def _refused(message: str) -> RequestError:
    return RequestError(f"the grammar cannot be enforced: {message}", code=codes.UNSUPPORTED_SCHEMA)
