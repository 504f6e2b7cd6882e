"""Conjunction: one schema that holds exactly when two do. The rules are exact; what has none is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.schema.keywords import identity
from heptagram_backend.schema.place import Place

_LARGER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_SMALLER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_UNEVALUATED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))
_SHAPE: Final = frozenset(("properties", "additionalProperties"))


def merge(left: Mapping[str, Any], right: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
    """Both schemas as one; ``None`` when their types or values exclude each other.

    ``left`` and ``right`` hold known keywords only and no ``$ref`` or ``allOf``. Values may be left as ``allOf`` for
    a later walk.

    Raises:
        RequestError: the two cannot be written as one.
    """
    merged = {**left, **right}
    for key in left.keys() & right.keys() - _SHAPE:
        value = _both(key, left[key], right[key], place)
        if value is None:
            return None
        merged[key] = value
    if _SHAPE & left.keys() and _SHAPE & right.keys():
        if "patternProperties" in merged:
            raise place.refuse("`patternProperties` in one of several schemas that all hold cannot be enforced")
        merged |= _shape(left, right)
    tuples = ("prefixItems" in left and "items" in right) or ("items" in left and "prefixItems" in right)
    if tuples and left.get("prefixItems") != right.get("prefixItems"):
        raise place.refuse("`prefixItems` and `items` of several schemas that all hold cannot be joined; write one")
    return merged


def closes_over(schema: Mapping[str, Any], place: Place) -> None:
    """Refuse ``unevaluated*`` where it would see only a part of the schemas that hold.

    Raises:
        RequestError: the schema has such a keyword.
    """
    for key in _UNEVALUATED & schema.keys():
        if schema[key] is not True:
            raise (place / key).refuse(f"`{key}` is enforced only beside the other schemas, not inside one of them")


def _both(key: str, left: Any, right: Any, place: Place) -> Any:
    if key == "type":
        return _types(left, right)
    if key == "required" and isinstance(left, list) and isinstance(right, list):
        return [*left, *(name for name in right if name not in left)]
    if key in _LARGER | _SMALLER and _is_number(left) and _is_number(right):
        return max(left, right) if key in _LARGER else min(left, right)
    if key == "uniqueItems":
        return left is True or right is True
    if key == "enum" and isinstance(left, list) and isinstance(right, list):
        known = {identity(value) for value in right}
        return [value for value in left if identity(value) in known] or None
    if identity(left) == identity(right):
        return left
    if key == "items":
        return {"allOf": [left, right]}
    raise (place / key).refuse(f"two different `{key}` that both hold cannot be enforced; write one")


def _types(left: Any, right: Any) -> list[str] | None:
    first, second = ((value if isinstance(value, list) else [value]) for value in (left, right))
    kept = [name for name in first if name in second or (name == "integer" and "number" in second)]
    kept += ["integer"] if "integer" in second and "number" in first and "integer" not in kept else []
    return kept or None


def _shape(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """A key declared on one side only meets the other side's ``additionalProperties``."""
    sides = [(dict(side.get("properties") or {}), side.get("additionalProperties", True)) for side in (left, right)]
    properties = {
        key: _all([declared.get(key, rest) for declared, rest in sides]) for key in {**sides[0][0], **sides[1][0]}
    }
    rest = _all([others for _, others in sides])
    return {"properties": properties} | ({} if rest is True else {"additionalProperties": rest})


def _all(schemas: list[Any]) -> Any:
    """All of two subschemas; ``True`` adds nothing."""
    if False in [schema for schema in schemas if isinstance(schema, bool)]:
        return False
    kept = [schema for schema in schemas if schema is not True]
    return (kept[0] if len(kept) == 1 else {"allOf": kept}) if kept else True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
