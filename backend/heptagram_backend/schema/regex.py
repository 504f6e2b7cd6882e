r"""Reader of ``pattern``: the part of ECMA-262 that is regular and that all readers understand alike.

Where engines differ (is ``é`` a ``\w``?), a set keeps only what it surely holds, so whatever is generated matches in
JavaScript with the ``u`` flag and in Python. Look-around, back references, word borders, ``\p`` and flags are refused.
An anchor is read at the start or end of an alternative that reaches the edge of the pattern; elsewhere it is refused.
Without an anchor a pattern is found anywhere in the string, as the standard says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from heptagram_backend.schema import charset
from heptagram_backend.schema.charset import EVERYTHING, Ranges, complement, of, union

MAX_REPEAT = 10_000
_DEPTH = 24


class PatternError(ValueError):
    """The pattern cannot be enforced; the text says why."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; an empty set matches nothing."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    start: bool


Node = Chars | Sequence | Choice | Repeat | Anchor

ANY = Repeat(Chars(EVERYTHING), 0, None)
EMPTY = Sequence(())

_ASCII_WORD = union(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
_BEYOND_ASCII: Ranges = ((0x80, 0x10FFFF),)
_SPACE = of(" \t\n\v\f\r")
_SPACE_SOMEWHERE = union(
    _SPACE, of("\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2028\u2029\u202f\u205f\u3000\ufeff"), ((0x2000, 0x200A),)
)
# letter: (what surely matches, what may match in some engine)
_SHORTHAND: dict[str, tuple[Ranges, Ranges]] = {
    "d": (((0x30, 0x39),), union(((0x30, 0x39),), _BEYOND_ASCII)),
    "w": (_ASCII_WORD, union(_ASCII_WORD, _BEYOND_ASCII)),
    "s": (_SPACE, _SPACE_SOMEWHERE),
}
_SHORTHAND |= {
    name.upper(): (complement(maybe), complement(surely)) for name, (surely, maybe) in list(_SHORTHAND.items())
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_DOT = complement(of("\n\r\u2028\u2029"))
_QUANTIFIER = re.compile(r"\{(\d{1,16})(?:(,)(\d{1,16})?)?\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")


def parse(pattern: str, *, whole: bool = False) -> Node:
    """Read a pattern into a tree that matches whole strings.

    Args:
        pattern: the regular expression.
        whole: it must match the whole string, anchors or not.

    Raises:
        PatternError: not a regular expression of the supported part.
    """
    reader = _Reader(pattern)
    tree = reader.choice(0)
    if not reader.done:
        raise PatternError("an unopened `)`")
    return _search(tree, start=whole, end=whole)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._text)

    def choice(self, depth: int) -> Node:
        if depth > _DEPTH:
            raise PatternError(f"groups nested deeper than {_DEPTH}")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while not self.done and self._peek() not in "|)":
            items.append(self._quantified(self._atom(depth)))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _atom(self, depth: int) -> Node:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return Chars(self._class())
        if character == "\\":
            return Chars(self._escape()[0])
        if character == ".":
            return Chars(_DOT)
        if character in "^$":
            return Anchor(start=character == "^")
        if character in "*+?{":
            raise PatternError(f"`{character}` repeats nothing; write `\\{character}` for the character itself")
        return Chars(of(character))

    def _group(self, depth: int) -> Node:
        if self._take("?"):
            name = re.compile(r"<[A-Za-z_]\w*>").match(self._text, self._at)
            if name:
                self._at = name.end()
            elif not self._take(":"):
                raise PatternError("look-around, flags and conditions are not regular; write the pattern without them")
        tree = self.choice(depth + 1)
        if not self._take(")"):
            raise PatternError("a `(` is not closed")
        return tree

    def _quantified(self, item: Node) -> Node:
        counts: tuple[int, int | None] | None = None
        if not self.done and self._peek() in "*+?":
            counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._next()]
        elif match := _QUANTIFIER.match(self._text, self._at):
            self._at = match.end()
            low = int(match[1])
            counts = low, (int(match[3]) if match[3] else None) if match[2] else low
        if counts is None:
            return item
        self._take("?")  # lazy: the same language
        if not self.done and self._peek() in "*+?":
            raise PatternError("a quantifier follows a quantifier")
        low, high = counts
        if isinstance(item, Anchor):
            raise PatternError("an anchor cannot be repeated")
        if max(low, high or 0) > MAX_REPEAT:
            raise PatternError(f"a repetition of more than {MAX_REPEAT}")
        if high is not None and high < low:
            raise PatternError("a repetition whose maximum is below its minimum")
        return Repeat(item, low, high)

    def _class(self) -> Ranges:
        negated = self._take("^")
        if self._text.startswith("]", self._at):
            raise PatternError("engines read `[]` differently; write `\\]` for the bracket")
        surely: list[Ranges] = []
        maybe: list[Ranges] = []
        while not self._take("]"):
            low, low_maybe = self._class_atom()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._next()
                high, _ = self._class_atom()
                if _single(low) is None or _single(high) is None:
                    raise PatternError("a range in `[]` must go from one character to another; write `\\-` for a dash")
                first, last = low[0][0], high[0][0]
                if first > last:
                    raise PatternError("a range in `[]` runs backwards")
                low = low_maybe = ((first, last),)
            surely.append(low)
            maybe.append(low_maybe)
        return complement(union(*maybe)) if negated else charset.intersection(union(*surely), EVERYTHING)

    def _class_atom(self) -> tuple[Ranges, Ranges]:
        character = self._next()
        if character == "[":
            raise PatternError("write `\\[` inside `[]`")
        if character == "\\":
            return self._escape()
        return of(character), of(character)

    def _escape(self) -> tuple[Ranges, Ranges]:
        if match := _HEX.match(self._text, self._at):
            self._at = match.end()
            code = int(match[1] or match[2], 16)
            if 0xD800 <= code <= 0xDFFF:
                raise PatternError("half a surrogate pair; write the character itself")
            return ((code, code),), ((code, code),)
        character = self._next()
        if character in _SHORTHAND:
            return _SHORTHAND[character]
        if character in _CONTROL:
            return of(_CONTROL[character]), of(_CONTROL[character])
        if character.isalnum() or not character.isascii():
            raise PatternError(f"`\\{character}` is not supported; write a class of characters instead")
        return of(character), of(character)

    def _peek(self) -> str:
        return self._text[self._at]

    def _next(self) -> str:
        if self.done:
            raise PatternError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found


def _single(ranges: Ranges) -> int | None:
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


def _search(tree: Node, *, start: bool = False, end: bool = False) -> Node:
    """Read anchors at the edges; an edge without one lets anything stand before or behind.

    ``start`` and ``end`` say that an anchor outside already holds that edge.
    """
    if isinstance(tree, Choice):
        return Choice(tuple(_search(option, start=start, end=end) for option in tree.options))
    items = list(tree.items) if isinstance(tree, Sequence) else [tree]
    while items and items[0] == Anchor(start=True):
        start = bool(items.pop(0))
    while items and items[-1] == Anchor(start=False):
        end = bool(items.pop())
    if len(items) == 1 and isinstance(items[0], Choice | Sequence):
        return _search(items[0], start=start, end=end)
    if any(_has_anchor(item) for item in items):
        raise PatternError("`^` and `$` may stand only at the start and the end of the pattern")
    return Sequence((*(() if start else (ANY,)), *items, *(() if end else (ANY,))))


def _has_anchor(tree: Node) -> bool:
    if isinstance(tree, Repeat):
        return _has_anchor(tree.item)
    children = tree.items if isinstance(tree, Sequence) else tree.options if isinstance(tree, Choice) else ()
    return isinstance(tree, Anchor) or any(map(_has_anchor, children))
