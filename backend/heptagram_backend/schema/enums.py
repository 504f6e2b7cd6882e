"""``enum`` and ``const``: the values are listed, so what stands beside them filters the list."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from math import perm
from typing import Any, Final

from heptagram_backend.schema.keywords import ARRAY, NUMBER, OBJECT, STRING, identity, type_of, types
from heptagram_backend.schema.listed import admits
from heptagram_backend.schema.nodes import Nodes
from heptagram_backend.schema.place import Place

_GROUPS: Final = ((OBJECT, {"object"}), (ARRAY, {"array"}), (STRING, {"string"}), (NUMBER, {"integer", "number"}))
_INT64: Final = 2**63
_DISTINCT: Final = 400  # arrays that are listed one by one


def enumerated(schema: Mapping[str, Any], place: Place, walk: Nodes) -> dict[str, Any] | None:
    """The values that ``enum``, ``const`` and the keywords beside them leave; ``None`` when there is none.

    Raises:
        RequestError: it cannot be decided whether a keyword admits a value, or a value cannot be written.
    """
    values = list({identity(value): value for value in _listed(schema, place)}.values())
    excluded = {identity(value) for value in schema.get("not", {"enum": ()})["enum"]}
    values = [value for value in values if identity(value) not in excluded]
    if "type" in schema:
        allowed = set(types(schema, place))
        allowed |= {"integer"} if "number" in allowed else set()
        values = [value for value in values if type_of(value) in allowed]
    for group, kinds in _GROUPS:
        for key in sorted(group & schema.keys()):
            values = _filtered(values, schema, key, kinds, place, walk)
    for value in values:
        _check(value, place)
    walk.budget.enum(place, len(values), sum(len(identity(value)) for value in values))
    return one_of(values)


def listed_in(value: Any) -> list[Any]:
    """The values of ``enum``, or of a ``not`` that lists values; none where it is no list."""
    values = value.get("enum") if isinstance(value, dict) else value
    return values if isinstance(values, list) else []


def one_of(values: list[Any]) -> dict[str, Any] | None:
    return ({"const": values[0]} if len(values) == 1 else {"enum": values}) if values else None


def distinct(item: Mapping[str, Any], least: int, most: int | None) -> list[list[Any]] | None:
    """All arrays of different values of ``item``, a walked schema; ``None`` when they are too many to list.

    Args:
        item: the schema of every element.
        least: fewest elements.
        most: most elements, ``None`` for no bound.
    """
    values = _finite(item)
    if values is None:
        return None
    sizes = range(least, min(len(values), len(values) if most is None else most) + 1)
    if sum(perm(len(values), size) for size in sizes) > _DISTINCT:
        return None
    return [list(array) for size in sizes for array in permutations(values, size)]


def _finite(node: Mapping[str, Any]) -> list[Any] | None:
    if "const" in node:
        return [node["const"]]
    kinds: dict[str, list[Any]] = {"boolean": [False, True], "null": [None]}
    values: list[Any] | None = node.get("enum", kinds.get(node.get("type", "")))
    return values if values is None or len(values) <= _DISTINCT else None


def _filtered(
    values: list[Any], schema: Mapping[str, Any], key: str, kinds: set[str], place: Place, walk: Nodes
) -> list[Any]:
    """Without those that ``key`` does not admit."""
    verdicts = [admits(schema, key, value, place, walk.budget) if type_of(value) in kinds else True for value in values]
    if None in verdicts:
        message = f"beside `enum` or `const` leave `{key}` out: the values are listed"
        walk.leave(place / key, message, {key: schema[key]})
    return [value for value, verdict in zip(values, verdicts, strict=True) if verdict is not False]


def _listed(schema: Mapping[str, Any], place: Place) -> list[Any]:
    if "enum" not in schema:
        return [schema["const"]]
    values = schema["enum"]
    if not isinstance(values, list):
        raise (place / "enum").invalid("must be a list of values")
    if "const" not in schema:
        return values
    return [value for value in values if identity(value) == identity(schema["const"])]


def _check(value: Any, place: Place) -> None:
    """XGrammar reads numbers as 64-bit integers or doubles."""
    if isinstance(value, int) and not -_INT64 < value < _INT64:
        raise place.refuse("whole numbers beyond 64 bits cannot be written in `enum` or `const`")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _check(child, place)
