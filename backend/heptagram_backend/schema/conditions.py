"""``not``, ``if`` and ``dependent*`` as unions, where what does not hold can be written as a schema too.

``if C then T else E`` is ``(C and T) or (not C and E)``. A condition on the value of a property, the usual kind, has
an opposite that a grammar can hold; where there is none, the keyword is left to the check of the finished value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.schema.keywords import ANNOTATIONS, TYPES
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.nodes import Nodes
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.vet import dependencies

CONDITIONS: Final = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas")
_ADVICE: Final = "write the cases as `anyOf`"


class Rewritten(dict[str, Any]):
    """A schema that a keyword of the caller's was turned into; ``place`` is where that keyword stands."""

    def __init__(self, schema: Mapping[str, Any], place: Place) -> None:
        super().__init__(schema)
        self.place = place


def without_conditions(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> dict[str, Any]:
    """``schema`` with each condition in ``allOf`` as what it means; of ``not`` only listed values stay.

    Args:
        schema: known keywords.
        place: where it stands.
        walk: is told what is left to the check; that may raise.
        exact: conditions may be rewritten. What is rewritten declares properties that the original does not, which
            ``unevaluatedProperties`` could see.
    """
    kept = {key: value for key, value in schema.items() if key not in CONDITIONS}
    parts = _dependent(schema, place, walk, exact=exact)
    if "if" in schema:
        parts += _cases(schema, place, walk, exact=exact)
    if "not" in schema:
        here = place / "not"
        opposite = negated(schema["not"], here, walk.budget) if exact else None
        if opposite is None:
            walk.leave(here, "`not` of this cannot be enforced; list what is allowed instead", {"not": schema["not"]})
        elif isinstance(opposite, dict) and opposite.keys() == {"not"}:
            kept["not"] = opposite["not"]
        else:
            parts.append(_placed(opposite, here))
    if not parts:
        return kept
    others = kept.get("allOf", [])
    if not isinstance(others, list):
        raise (place / "allOf").invalid("must be a list of at least one schema")
    return kept | {"allOf": [*others, *parts]}


def _cases(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> list[Any]:
    opposite = negated(schema["if"], place / "if", walk.budget) if exact else None
    if opposite is None:
        told = {key: schema[key] for key in ("if", "then", "else") if key in schema}
        walk.leave(place / "if", f"`if` cannot be enforced here; {_ADVICE}", told)
        return []
    opposites = opposite["anyOf"] if isinstance(opposite, dict) and opposite.keys() == {"anyOf"} else [opposite]
    cases = [_all([schema["if"], schema.get("then", True)], place / ("then" if "then" in schema else "if"))]
    cases += [
        _all([other, schema.get("else", True)], place / ("else" if "else" in schema else "if")) for other in opposites
    ]
    return [{"anyOf": cases}]


def _all(schemas: list[Any], place: Place) -> Rewritten:
    return Rewritten({"allOf": [_placed(schema, place) for schema in schemas]}, place)


def _placed(schema: Any, place: Place) -> Any:
    return Rewritten(schema, place) if isinstance(schema, dict) else schema


def _dependent(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> list[Any]:
    needed: dict[str, list[Any]] = {}
    if "dependentRequired" in schema:
        needed |= {
            name: [{"required": [name, *others]}]
            for name, others in dependencies(schema, "dependentRequired", place).items()
            if others
        }
    here = place / "dependentSchemas"
    schemas = schema.get("dependentSchemas", {})
    if not isinstance(schemas, dict):
        raise here.invalid("must be an object that maps names to schemas")
    for name, child in schemas.items():
        needed.setdefault(name, [{"required": [name]}]).append(child)
    if needed and not exact:
        told = {key: schema[key] for key in ("dependentRequired", "dependentSchemas") if key in schema}
        walk.leave(place / next(iter(told)), f"it cannot be enforced here; {_ADVICE}", told)
        return []
    return [{"anyOf": [{"properties": {name: False}}, _all(parts, here / name)]} for name, parts in needed.items()]


def negated(schema: Any, place: Place, budget: Budget) -> Any | None:
    """A schema for exactly the values that ``schema`` does not admit; ``None`` where none is known.

    Its ``not`` lists values; every other keyword is one that the walk enforces.
    """
    budget.node(place, 0)
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, dict):
        return None
    opposite = _Opposite(place, budget)
    asserted = {key: value for key, value in schema.items() if key not in ANNOTATIONS and not key.startswith("x-")}
    return _any([opposite.of(key, value) for key, value in asserted.items()])


@dataclass(frozen=True, slots=True)
class _Opposite:
    place: Place
    budget: Budget

    def of(self, key: str, value: Any) -> Any | None:
        """The opposite of one keyword."""
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
            case "required", list() if all(isinstance(name, str) for name in value):
                return _any([{"type": "object", "properties": {name: False}} for name in value])
            case "properties", dict():
                return _any([_has(name, self._negated(child)) for name, child in value.items()])
            case "allOf", list():
                return _any([self._negated(part) for part in value])
            case "anyOf", list():
                parts = [self._negated(part) for part in value]
                return None if None in parts else {"allOf": parts}
        return None

    def _negated(self, schema: Any) -> Any | None:
        return negated(schema, self.place, self.budget)


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
    if not names or not all(name in TYPES for name in names) or ("integer" in names and "number" not in names):
        return None
    others = [name for name in TYPES if name not in names and name != "integer"]
    return {"type": others} if others else False


def _has(name: str, value: Any | None) -> Any | None:
    return None if value is None else {"type": "object", "properties": {name: value}, "required": [name]}


def _any(options: list[Any | None]) -> Any | None:
    if None in options:
        return None
    return {"anyOf": options} if len(options) > 1 else options[0] if options else False
