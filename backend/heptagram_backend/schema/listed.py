"""Is a listed value admitted by a keyword beside it? Decided for numbers and for strings, but for ``format``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.regex import Chars, Choice, Node, PatternError, Repeat, Sequence, parse
from heptagram_backend.schema.render import cost

_TEXT = 100  # characters of a text in which a pattern is looked for
_PATTERN = 1_024


def admits(schema: Mapping[str, Any], key: str, value: Any, place: Place, budget: Budget) -> bool | None:
    """Does the keyword ``key`` of ``schema`` admit ``value``, of a type that it speaks of? ``None``: not decided."""
    bound = schema[key]
    if key == "pattern" and isinstance(bound, str) and isinstance(value, str):
        return found(bound, value, place, budget)
    if key not in _DECIDED or isinstance(bound, bool) or not isinstance(bound, int | float):
        return None
    return _DECIDED[key](_exact(len(value) if isinstance(value, str) else value), _exact(bound))


def found(pattern: str, text: str, place: Place, budget: Budget) -> bool | None:
    """Is ``pattern`` found in ``text``? ``None`` where engines could differ, or it is not enforced at all."""
    tree = _tree(pattern)
    if tree is None or not text.isascii() or len(text) > _TEXT:
        return None
    budget.pattern(place, cost(tree) * max(1, len(text) // 8))
    return len(text) in _ends(tree, text, frozenset({0}))


@lru_cache(maxsize=256)
def _tree(pattern: str) -> Node | None:
    try:
        return parse(pattern) if len(pattern) <= _PATTERN else None
    except PatternError:
        return None


def _exact(number: int | float) -> Fraction:
    return Fraction(repr(number))


_DECIDED: Final[Mapping[str, Callable[[Fraction, Fraction], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "minLength": lambda value, bound: value >= bound,
    "maxLength": lambda value, bound: value <= bound,
}


def _ends(tree: Node, text: str, starts: frozenset[int]) -> frozenset[int]:
    """Where matches of ``tree`` that begin at one of ``starts`` end; all at once, so nothing backtracks."""
    if isinstance(tree, Chars):
        return frozenset(at + 1 for at in starts if at < len(text) and _holds(tree, ord(text[at])))
    if isinstance(tree, Sequence):
        for item in tree.items:
            starts = _ends(item, text, starts)
        return starts
    if isinstance(tree, Choice):
        return frozenset().union(*(_ends(option, text, starts) for option in tree.options))
    assert isinstance(tree, Repeat), "anchors are read by the parser"
    for _ in range(min(tree.low, len(text) + 1)):  # more rounds than characters add nothing
        if not starts:
            break
        starts = _ends(tree.item, text, starts)
    reached = starts
    for _ in range(len(text) if tree.high is None else min(tree.high - tree.low, len(text))):
        starts = _ends(tree.item, text, starts) - reached
        if not starts:
            break
        reached |= starts
    return reached


def _holds(tree: Chars, code: int) -> bool:
    return any(low <= code <= high for low, high in tree.ranges)
