"""``not``, ``if`` and ``dependent*`` as unions, where what does not hold can be written as a schema too.

``if C then T else E`` is ``(C and T) or (not C and E)``. A condition on the value of a property, the usual kind, has
an opposite that a grammar can hold; where there is none, the keyword is left to the check of the finished value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_backend.schema.keywords import ANNOTATIONS, TYPES
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.vet import dependencies

Leave = Callable[[Place, str, Mapping[str, Any]], None]

CONDITIONS: Final = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas")
_ADVICE: Final = "write the cases as `anyOf`"


def without_conditions(schema: Mapping[str, Any], place: Place, leave: Leave, *, exact: bool) -> dict[str, Any]:
    """``schema`` with each condition in ``allOf`` as what it means; of ``not`` only listed values stay.

    Args:
        schema: known keywords.
        place: where it stands.
        leave: called with what is left to the check; it may raise.
        exact: conditions may be rewritten. What is rewritten declares properties that the original does not, which
            ``unevaluatedProperties`` could see.
    """
    kept = {key: value for key, value in schema.items() if key not in CONDITIONS}
    parts = list(_dependent(schema, place, leave, exact=exact))
    if "if" in schema:
        case = _case(schema) if exact else None
        if case is None:
            told = {key: schema[key] for key in ("if", "then", "else") if key in schema}
            leave(place / "if", f"`if` cannot be enforced here; {_ADVICE}", told)
        else:
            parts.append(case)
    if "not" in schema:
        opposite = negated(schema["not"]) if exact else None
        if opposite is None:
            message = "`not` of this cannot be enforced; list what is allowed instead"
            leave(place / "not", message, {"not": schema["not"]})
        elif isinstance(opposite, dict) and opposite.keys() == {"not"}:
            kept["not"] = opposite["not"]
        else:
            parts.append(opposite)
    return kept | ({"allOf": [*kept.get("allOf", []), *parts]} if parts else {})


def _case(schema: Mapping[str, Any]) -> Any | None:
    opposite = negated(schema["if"])
    if opposite is None:
        return None
    return {"anyOf": [{"allOf": [schema["if"], schema.get("then", True)]}, both(opposite, schema.get("else", True))]}


def both(left: Any, right: Any) -> Any:
    return left if right is True else {"allOf": [left, right]}


def _dependent(schema: Mapping[str, Any], place: Place, leave: Leave, *, exact: bool) -> list[Any]:
    needed: dict[str, Any] = {}
    if "dependentRequired" in schema:
        needed |= {
            name: [{"required": [name, *others]}]
            for name, others in dependencies(schema, "dependentRequired", place).items()
            if others
        }
    schemas = schema.get("dependentSchemas", {})
    if not isinstance(schemas, dict):
        raise (place / "dependentSchemas").invalid("must be an object that maps names to schemas")
    for name, child in schemas.items():
        needed.setdefault(name, [{"required": [name]}]).append(child)
    if needed and not exact:
        told = {key: schema[key] for key in ("dependentRequired", "dependentSchemas") if key in schema}
        leave(place / next(iter(told)), f"it cannot be enforced here; {_ADVICE}", told)
        return []
    return [{"anyOf": [{"properties": {name: False}}, {"allOf": parts}]} for name, parts in needed.items()]


def negated(schema: Any) -> Any | None:
    """A schema for exactly the values that ``schema`` does not admit; ``None`` where none is known.

    Its ``not`` lists values; every other keyword is one that the walk enforces.
    """
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, dict):
        return None
    asserted = {key: value for key, value in schema.items() if key not in ANNOTATIONS and not key.startswith("x-")}
    options = [_opposite(key, value) for key, value in asserted.items()]
    if any(option is None for option in options):
        return None
    return False if not options else options[0] if len(options) == 1 else {"anyOf": options}


def _opposite(key: str, value: Any) -> Any | None:
    if key in _BOUNDS and isinstance(value, int | float) and not isinstance(value, bool):
        kind, other, step = _BOUNDS[key]
        return {"type": kind, other: value + step} if value + step >= 0 or kind == "number" else False
    match key, value:
        case "not", _:
            return value
        case ("const", _) | ("enum", list()):
            return {"not": {"enum": value if key == "enum" else [value]}}
        case "type", str() | list():
            return _other_types([value] if isinstance(value, str) else value)
        case "required", list():
            return _any([{"type": "object", "properties": {name: False}} for name in value if isinstance(name, str)])
        case "properties", dict():
            return _any([_has(name, negated(child)) for name, child in value.items()])
        case "allOf", list():
            return _any([negated(part) for part in value])
        case "anyOf", list():
            parts = [negated(part) for part in value]
            return None if None in parts else {"allOf": parts}
    return None


_BOUNDS: Final[Mapping[str, tuple[str, str, int]]] = {
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}


def _other_types(names: list[Any]) -> Any | None:
    """All other types; numbers that are not whole have no type of their own."""
    if not names or not set(names) <= set(TYPES) or ("integer" in names and "number" not in names):
        return None
    others = [name for name in TYPES if name not in names and name != "integer"]
    return {"type": others} if others else False


def _has(name: str, value: Any | None) -> Any | None:
    return None if value is None else {"type": "object", "properties": {name: value}, "required": [name]}


def _any(options: list[Any | None]) -> Any | None:
    return None if None in options else {"anyOf": options} if options else False
