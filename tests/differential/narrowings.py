"""Why a valid value cannot be generated. Every reason is one that the documentation names, and is put to the test:

the value without what the reason speaks of is still valid, and the grammar generates it. What no reason explains is a
fault of the walker or of a format. :data:`REASONS` is the list in the docstring of ``schema/__init__.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, permutations
from typing import Any, Final

from heptagram_backend.formats.deepseek_v4.markup import DSML
from heptagram_backend.schema import SchemaLimits
from heptagram_backend.schema.keywords import ARRAY, NUMBER, OBJECT, STRING, identity
from tests.differential.grammars import Asked, canonical
from tests.differential.subschemas import rewritten, subschemas
from tests.preprocess.oracle import valid

Rewrite = Callable[[Any, Any], Any]
"""Of the schema and the value: the value without what a reason speaks of."""
Make = Callable[[Any], Asked | None]
"""Of a schema: who can be asked about it; ``None`` where it is refused."""

_TRIES: Final = 720
_DIGITS: Final = 10**31
_BOUNDED_DIGITS: Final = 10**14
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\\x7f]')
_BLANK: Final = re.compile(r"\s")
_BEYOND: Final = re.compile(r"[^\x00-\x7f]")
_TYPE: Final = "keyword without type"
_FORMAT: Final = "rarer spelling of a format"
SEVERAL: Final = "several of these"
_GROUPS: Final = (("object", OBJECT), ("array", ARRAY), ("string", STRING), ("number", NUMBER))
_IN_PLACE: Final = ("if", "then", "else", "not")


def reason(schema: Any, value: Any, asked: Asked, make: Make) -> str | None:
    """The documented reason why ``asked`` refuses the valid ``value``; ``None`` when there is none."""
    if not valid(typed(schema), value):
        return _TYPE
    for name, rewrite in _REWRITES.items():
        if _explains(schema, value, rewrite(schema, value), asked):
            return name
    if _of_rare_format(schema, value, make):
        return _FORMAT
    whole = value
    for rewrite in _REWRITES.values():
        whole = rewrite(schema, whole)
    if _explains(schema, value, whole, asked):
        return SEVERAL
    for name, others in _SEARCHES.items():
        if any(_explains(schema, value, other, asked) for other in islice(others(whole), _TRIES)):
            return name
    return None


def _explains(schema: Any, value: Any, other: Any, asked: Asked) -> bool:
    return canonical(other) != canonical(value) and valid(schema, other) and asked(other) is True


def _of_rare_format(schema: Any, value: Any, make: Make) -> bool:
    """Would it be generated without the formats?"""
    bare = rewritten(schema, lambda node: {key: child for key, child in node.items() if key != "format"})
    asked = make(bare) if bare != schema else None
    return asked is not None and asked(value) is True


def typed(schema: Any) -> Any:
    """``schema`` in which a keyword without ``type`` demands the type that it speaks of."""

    def change(node: dict[str, Any]) -> dict[str, Any]:
        spoken = sorted(_spoken(node))
        bare = node.keys().isdisjoint(("type", "enum", "const"))
        return {**node, "type": spoken} if spoken and bare else node

    return rewritten(schema, change)


def _spoken(node: Any) -> set[str]:
    if not isinstance(node, dict):
        return set()
    return {name for name, group in _GROUPS if group & node.keys()}.union(
        *(_spoken(node[key]) for key in _IN_PLACE if key in node)
    )


def _declared(schema: Any, value: Any) -> Any:
    """Without properties that are declared nowhere in the schema."""
    return _without_others(value, set(_names(schema)))


def _without_others(value: Any, names: set[str]) -> Any:
    if isinstance(value, list):
        return [_without_others(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_others(child, names) for name, child in value.items() if name in names}


def _ordered(schema: Any, value: Any) -> Any:
    """Properties in the order in which the schema names them first."""
    return _sorted(value, {name: place for place, name in reversed(list(enumerate(_names(schema))))})


def _sorted(value: Any, places: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_sorted(item, places) for item in value]
    if not isinstance(value, dict):
        return value
    names = sorted(value, key=lambda name: places.get(name, len(places)))
    return {name: _sorted(value[name], places) for name in names}


def _integers(schema: Any, value: Any) -> Any:
    """``1.0`` as ``1``."""
    return _each(value, lambda leaf: int(leaf) if isinstance(leaf, float) and leaf.is_integer() else leaf)


def _decimals(schema: Any, value: Any) -> Any:
    """Without an exponent, and with six decimals, where numbers are bounded."""
    if not _mentions(schema, NUMBER):
        return value
    return _integers(schema, _each(value, lambda leaf: round(leaf, 6) if isinstance(leaf, float) else leaf))


def _digits(schema: Any, value: Any) -> Any:
    """Whole numbers of no more than 32 digits; beside a bound, of no more than 15."""
    most = _BOUNDED_DIGITS if _mentions(schema, NUMBER) else _DIGITS

    def change(leaf: Any) -> Any:
        whole = _integers(schema, leaf)
        large = isinstance(whole, int) and abs(whole) >= most
        return (most if whole > 0 else -most) if large else leaf

    return _each(value, change)


def _unescaped(schema: Any, value: Any) -> Any:
    """Strings without characters that JSON escapes, where strings are bounded."""
    if not _mentions(schema, STRING | {"enum", "const"}):
        return value
    return _each(value, lambda leaf: _ESCAPED.sub("x", _blanks(leaf)) if isinstance(leaf, str) else leaf)


def _within_limits(schema: Any, value: Any) -> Any:
    """Strings and arrays no longer than a count may be; ``json_node`` holds arrays to the bounds of an answer."""
    limits = SchemaLimits()
    if not _mentions(schema, {"maxLength", "maxItems"}):
        return value
    return _cut(value, limits.max_length, limits.items)


def _cut(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, list):
        return [_cut(item, characters, items) for item in value[:items]]
    if isinstance(value, dict):
        return {name: _cut(child, characters, items) for name, child in value.items()}
    return value[:characters] if isinstance(value, str) else value


def _ascii(schema: Any, value: Any) -> Any:
    r"""Strings of ASCII: beyond it engines differ about what ``\s``, ``\D`` and others hold."""
    if not _mentions(schema, {"pattern"}):
        return value
    return _each(value, lambda leaf: _BEYOND.sub("x", _blanks(leaf)) if isinstance(leaf, str) else leaf)


def _blanks(text: str) -> str:
    return _BLANK.sub(" ", text.replace("\ufeff", " "))


def _unmarked(schema: Any, value: Any) -> Any:
    """Strings without the bar of the marker of DSML."""
    return _each(value, lambda leaf: leaf.replace(DSML[0], "x") if isinstance(leaf, str) else leaf)


def _listed(schema: Any, value: Any) -> Any:
    """Values of ``enum`` and ``const`` as they are listed."""
    listed: dict[str, Any] = {}
    for node in subschemas(schema):
        values = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
        listed |= {identity(one): one for one in values}
    return _as_listed(value, listed)


def _as_listed(value: Any, listed: Mapping[str, Any]) -> Any:
    if (key := identity(value)) in listed:
        return listed[key]
    if isinstance(value, list):
        return [_as_listed(item, listed) for item in value]
    return {name: _as_listed(child, listed) for name, child in value.items()} if isinstance(value, dict) else value


_REWRITES: Final[Mapping[str, Rewrite]] = {
    "undeclared property": _declared,
    "order of properties": _ordered,
    "integer as 1.0": _integers,
    "exponent or decimals of a bounded number": _decimals,
    "more digits than a number may have": _digits,
    "escape in a bounded string": _unescaped,
    "length beyond the limit": _within_limits,
    "character beyond ASCII in a class of a pattern": _ascii,
    "marker of DSML in a raw string": _unmarked,
    "enum or const in another spelling": _listed,  # last of all: what it makes is not rewritten again
}


def _orders(value: Any) -> Iterator[Any]:
    """The properties of the outermost object in every order."""
    yield from (dict(order) for order in permutations(value.items())) if isinstance(value, dict) else ()


def _without_one(value: Any) -> Iterator[Any]:
    """Without one property: what one branch of a union declares is undeclared in another."""
    if isinstance(value, dict):
        yield from ({key: value[key] for key in value if key != name} for name in value)
    yield from _inside(value, _without_one)


def _shorter(value: Any) -> Iterator[Any]:
    """Without the items at an array's end."""
    if isinstance(value, list):
        yield from (value[:length] for length in reversed(range(len(value))))
    yield from _inside(value, _shorter)


def _inside(value: Any, others: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in others(item))
    if isinstance(value, dict):
        for name, child in value.items():
            yield from ({**value, name: other} for other in others(child))


_SEARCHES: Final[Mapping[str, Callable[[Any], Iterator[Any]]]] = {
    "order of properties": _orders,
    "undeclared property": _without_one,
    "item that only an inner unevaluatedItems admits": _shorter,
}
REASONS: Final = frozenset((*_REWRITES, *_SEARCHES, _TYPE, _FORMAT))


def _names(schema: Any) -> list[str]:
    return [name for node in subschemas(schema) for name in (*node.get("properties", ()), *node.get("required", ()))]


def _mentions(schema: Any, keywords: set[str] | frozenset[str]) -> bool:
    return any(not keywords.isdisjoint(node) for node in subschemas(schema))


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_each(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _each(child, change) for name, child in value.items()}
    return change(value)
