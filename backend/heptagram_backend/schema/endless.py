"""References that lead back to themselves without reading any of the value: no check of such a schema ever ends.

Looked for in the schema as it was written, because the check of finished values reads that, dead branches too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from heptagram_backend.errors import RequestError
from heptagram_backend.schema.keywords import MAPS
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.pointer import follow

_LISTS: Final = ("anyOf", "oneOf", "allOf")
_SCHEMAS: Final = ("not", "if", "then", "else")
_NOT_READ: Final = frozenset(("$defs", "definitions", "enum", "const", "default", "example", "examples"))
Keys = tuple[str, ...]


def endless(root: Any, place: Place) -> Place | None:
    """The place of a schema that refers to itself at once; ``None`` when there is none.

    References that lead nowhere are none of its business.
    """
    finished: set[Keys] = set()
    waiting: list[Keys] = [()]
    while waiting:
        first = waiting.pop()
        if first in finished:
            continue
        trail, pending = [first], [_targets(root, first, place, at_once=True)]
        while pending:
            keys = next(pending[-1], None)
            if keys is None:
                pending.pop()
                finished.add(trail[-1])
                waiting.extend(_targets(root, trail.pop(), place, at_once=False))
            elif keys in trail:
                return place.at(keys)
            elif keys not in finished:
                trail.append(keys)
                pending.append(_targets(root, keys, place, at_once=True))
    return None


def _targets(root: Any, keys: Keys, place: Place, *, at_once: bool) -> Iterator[Keys]:
    """What the references in the schema at ``keys`` point to: those at its very place, or all."""
    schema = root
    for key in keys:
        schema = schema[int(key)] if isinstance(schema, list) else schema[key]
    for reference in (_at_once if at_once else _anywhere)(schema):
        try:
            yield follow(root, reference, place)[0]
        except RequestError:
            continue


def _at_once(schema: Any) -> Iterator[Any]:
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield schema["$ref"]
    inner: list[Any] = [schema[key] for key in _SCHEMAS if key in schema]
    for key in _LISTS:
        inner += schema[key] if isinstance(schema.get(key), list) else []
    cases = schema.get("dependentSchemas")
    inner += cases.values() if isinstance(cases, dict) else []
    for child in inner:
        yield from _at_once(child)


def _anywhere(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        for child in schema:
            yield from _anywhere(child)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for key, child in schema.items():
        if key in MAPS and isinstance(child, dict):
            yield from _anywhere(list(child.values()))
        elif key not in _NOT_READ:
            yield from _anywhere(child)
