"""The opposite of a schema, where a grammar can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.schema.keywords import ANNOTATIONS, TYPES
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place


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
