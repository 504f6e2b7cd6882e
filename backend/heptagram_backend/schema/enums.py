"""``enum`` and ``const``: the values are listed, so what stands beside them filters the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.schema.keywords import ARRAY, NUMBER, OBJECT, STRING, identity, type_of, types
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place

_GROUPS: Final = ((OBJECT, {"object"}), (ARRAY, {"array"}), (STRING, {"string"}), (NUMBER, {"integer", "number"}))
_INT64: Final = 2**63


def enumerated(schema: Mapping[str, Any], place: Place, budget: Budget) -> dict[str, Any] | None:
    """The values that ``enum``, ``const`` and ``type`` leave; ``None`` when there is none.

    Raises:
        RequestError: other keywords stand beside them that bind one of the values, or a value cannot be written.
    """
    values = list({identity(value): value for value in _listed(schema, place)}.values())
    if "type" in schema:
        allowed = set(types(schema, place))
        allowed |= {"integer"} if "number" in allowed else set()
        values = [value for value in values if type_of(value) in allowed]
    present = {type_of(value) for value in values}
    for group, kinds in _GROUPS:
        for key in sorted(group & schema.keys()):
            if kinds & present:
                raise (place / key).refuse(f"beside `enum` or `const` leave `{key}` out: the values are listed")
    for value in values:
        _check(value, place)
    budget.enum(place, len(values), sum(len(identity(value)) for value in values))
    if not values:
        return None
    return {"const": values[0]} if len(values) == 1 else {"enum": values}


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
