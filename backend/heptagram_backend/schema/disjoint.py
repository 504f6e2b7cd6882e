"""``oneOf`` is enforced as ``anyOf`` where no generated value can satisfy two branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from heptagram_backend.schema.keywords import TYPES, identity, type_of

Resolve = Callable[[Any], Mapping[str, Any]]


def exclusive(left: Mapping[str, Any], right: Mapping[str, Any], resolve: Resolve) -> bool:
    """Is it certain that what is generated for one branch is not valid for the other, both ways?

    Objects are generated with declared properties only, so a branch that requires a property which the other does not
    declare excludes the other's values. ``resolve`` follows a pure ``$ref``.
    """
    shared = _types(left) & _types(right)
    if not shared:
        return True
    values = _values(left), _values(right)
    if values[0] is not None and values[1] is not None:
        return not values[0] & values[1]
    if shared != {"object"} or not _plain(left) or not _plain(right):
        return False
    return _discriminated(left, right, resolve) or (_lacks(left, right) and _lacks(right, left))


def _types(schema: Mapping[str, Any]) -> set[str]:
    """With ``number`` split off ``integer``: the first then stands for fractions and whole numbers alike."""
    values = _listed(schema)
    declared = schema.get("type", list(TYPES))
    names = set(declared if isinstance(declared, list) else [declared])
    if "number" in names:
        names.add("integer")
    return names & {type_of(value) for value in values} if values is not None else names


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    values = _listed(schema)
    return None if values is None else {identity(value) for value in values}


def _plain(schema: Mapping[str, Any]) -> bool:
    return not {"anyOf", "oneOf", "allOf", "$ref"} & schema.keys()


def _required(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = schema.get("properties")
    return declared if isinstance(declared, dict) else {}


def _discriminated(left: Mapping[str, Any], right: Mapping[str, Any], resolve: Resolve) -> bool:
    """A property that both require and whose values never agree."""
    for key in _required(left) & _required(right):
        first, second = _properties(left).get(key), _properties(right).get(key)
        if first is None or second is None:
            continue
        values = _values(resolve(first)), _values(resolve(second))
        if values[0] is not None and values[1] is not None and not values[0] & values[1]:
            return True
    return False


def _lacks(generated: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """``other`` requires a property that no object generated for ``generated`` has."""
    declared = _properties(generated).keys() | _required(generated)
    closed = bool(declared) or generated.get("additionalProperties") is False
    return closed and bool(_required(other) - declared)
