"""A schema rewritten in every place, for tests that ask what a keyword makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

_MAPS: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SINGLE: Final = frozenset(
    ("items", "additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contains", "not")
).union(("if", "then", "else"))

Change = Callable[[dict[str, Any]], dict[str, Any]]


def rewritten(schema: Any, change: Change) -> Any:
    """``schema`` with ``change`` applied to every subschema that is an object, the inner ones first."""
    if not isinstance(schema, dict):
        return schema
    inner: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            inner[key] = {name: rewritten(child, change) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list):
            inner[key] = [rewritten(child, change) for child in value]
        else:
            inner[key] = rewritten(value, change) if key in _SINGLE else value
    return change(inner)


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Every subschema that is an object, the outer ones first."""
    found: list[dict[str, Any]] = []

    def note(node: dict[str, Any]) -> dict[str, Any]:
        found.append(node)
        return node

    rewritten(schema, note)
    yield from reversed(found)
