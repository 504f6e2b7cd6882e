"""Conjunction: one schema that holds exactly when two do.

Where two keywords have no common form, the second one is kept as it is, in ``allOf``; a later walk joins it where it
can (a union meets each branch of another) or gives it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any, Final, NoReturn

from heptagram_backend.schema.keywords import identity
from heptagram_backend.schema.place import Place

_LARGER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_SMALLER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
UNEVALUATED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))
_SHAPE: Final = frozenset(("properties", "additionalProperties", "patternProperties"))
_TUPLE: Final = frozenset(("prefixItems", "items"))


class ExclusiveError(Exception):
    """Nothing satisfies both."""


def merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both schemas as one; ``None`` when their types or values exclude each other.

    ``left`` and ``right`` hold known keywords only and no ``$ref``. In the result, ``allOf`` lists what could not be
    joined; values of other keywords may be left as ``allOf`` for a later walk.
    """
    apart = {
        key: right[key] for group in (_SHAPE, _TUPLE) if _clash(group, left, right) for key in group & right.keys()
    }
    merged = {**left, **{key: value for key, value in right.items() if key not in apart}}
    if not apart.keys() & _SHAPE and _SHAPE & left.keys() and _SHAPE & right.keys():
        merged |= _shape(left, right)
    rest = [apart] if apart else []
    try:
        for key in left.keys() & right.keys() - _SHAPE - apart.keys():
            merged[key] = _both(key, left[key], right[key])
            if merged[key] is None:
                merged[key] = left[key]
                rest.append({key: right[key]})
    except ExclusiveError:
        return None
    return merged | ({"allOf": [*merged.get("allOf", ()), *rest]} if rest else {})


def _clash(group: frozenset[str], left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Do keywords that mean each other's rest stand on both sides?"""
    mine, other = group & left.keys(), group & right.keys()
    if group is _SHAPE:
        odd = not all(isinstance(side.get("properties", {}), dict) for side in (left, right))  # no schema; told later
        return bool(mine and other) and (odd or "patternProperties" in mine | other)
    return (
        bool(mine and other) and "prefixItems" in mine | other and left.get("prefixItems") != right.get("prefixItems")
    )


def closes_over(schema: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """``schema`` without ``unevaluated*``, which would see only a part of the schemas that hold.

    Raises:
        RequestError: the schema has such a keyword, and it must be enforced.
    """
    for key in sorted(UNEVALUATED & schema.keys()):
        if schema[key] is not True:
            (place / key).leave(f"`{key}` is enforced only beside the other schemas, not inside one of them")
    return {key: value for key, value in schema.items() if key not in UNEVALUATED}


def _both(key: str, left: Any, right: Any) -> Any:
    """One value for both; ``None`` when there is none.

    Raises:
        ExclusiveError: no value satisfies both.
    """
    if key == "type":
        return _types(left, right)
    if key == "required" and isinstance(left, list) and isinstance(right, list):
        return [*left, *(name for name in right if name not in left)]
    if key in _LARGER | _SMALLER and _is_number(left) and _is_number(right):
        return max(left, right) if key in _LARGER else min(left, right)
    if key == "multipleOf" and isinstance(left, int) and isinstance(right, int) and min(left, right) > 0:
        return lcm(left, right)
    if key == "uniqueItems":
        return left is True or right is True
    if key == "enum" and isinstance(left, list) and isinstance(right, list):
        known = {identity(value) for value in right}
        return [value for value in left if identity(value) in known] or _exclude()
    if key == "allOf":
        return [*left, *right]
    if key == "not":
        return {"enum": [*left["enum"], *right["enum"]]}
    if identity(left) == identity(right):
        return left
    if key == "const":
        _exclude()
    return {"allOf": [left, right]} if key == "items" else None


def _exclude() -> NoReturn:
    raise ExclusiveError


def _types(left: Any, right: Any) -> list[str]:
    first, second = ((value if isinstance(value, list) else [value]) for value in (left, right))
    kept = [name for name in first if name in second or (name == "integer" and "number" in second)]
    kept += ["integer"] if "integer" in second and "number" in first and "integer" not in kept else []
    return kept or _exclude()


def _shape(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """A key declared on one side only meets the other side's ``additionalProperties``."""
    sides = [(dict(side.get("properties", {})), side.get("additionalProperties", True)) for side in (left, right)]
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
