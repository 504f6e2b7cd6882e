"""Schemas that try to cost as much as they can: beyond the limits, and as far as the limits let them go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}


def _object(properties: Mapping[str, Any], *required: str, **more: Any) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required), **more}


def _listed(count: int, length: int = 24) -> Schema:
    return {"enum": [f"{number:0{length}}" for number in range(count)]}


def _bounded(count: int, step: int) -> Schema:
    return _object({f"s{number}": {"type": "string", "maxLength": step * (number + 1)} for number in range(count)})


def _nested_choice(depth: int) -> Schema:
    """Two branches in each of which the same is chosen again: 2 ** depth leaves."""
    node: Schema = _object({})
    for _ in range(depth):
        branches = [_object({"kind": {"const": kind}, "next": node}, "kind", "next") for kind in "ab"]
        node = {"oneOf": branches}
    return _object({"root": node}, "root")


def _overlapping(count: int) -> Schema:
    """Branches of which several may hold: each pair is looked at."""
    return _object({"x": {"oneOf": [_object({f"p{number}": _TEXT}) for number in range(count)]}})


def _optional(count: int) -> Schema:
    return _object({f"property_{number}": _TEXT for number in range(count)})


def _deep(depth: int) -> Schema:
    node: Schema = _TEXT
    for _ in range(depth):
        node = _object({"inner": node}, "inner")
    return node


def _pattern(text: str) -> Schema:
    return _object({"s": {"type": "string", "pattern": text}}, "s")


def _doubled(depth: int, *required: str) -> Schema:
    """Each definition stands twice in the next: 2 ** depth values."""
    definitions: dict[str, Any] = {"d0": _TEXT}
    for level in range(1, depth + 1):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = _object({"a": reference, "b": reference}, *required)
    return _object({"root": {"$ref": f"#/$defs/d{depth}"}}, *(["root"] if required else []), **{"$defs": definitions})


def _endless() -> Schema:
    return _object({"next": {"$ref": "#"}}, "next")


def _counted(count: int) -> Schema:
    properties = {f"p{number}": {"type": "integer"} for number in range(count)}
    return _object({"o": {**_object(properties), "minProperties": count // 2}}, "o")


def _branches(count: int) -> Schema:
    shapes = [_object({"kind": {"const": f"k{number}"}, "s": _TEXT}, "kind") for number in range(count)]
    return _object({"x": {"anyOf": shapes}}, "x")


def _items_of_text() -> Schema:
    item = {"type": "string", "minLength": 1_000, "maxLength": 10_000}
    return _object({"x": {"type": "array", "items": item, "minItems": 1_000, "maxItems": 4_096}}, "x")


def _conditions(count: int) -> Schema:
    several = [_object({f"k{number}": {"enum": [1, 2]}}) for number in range(count)]
    return _object({"x": {"allOf": [{"anyOf": [one, {"type": "null"}]} for one in several]}})


HOSTILE: Final[Mapping[str, Callable[[], Schema]]] = {
    "enum of 100,000 strings": lambda: _object({"x": _listed(100_000)}),
    "enum of 2,000 strings (the limit)": lambda: _object({"x": _listed(2_000)}),
    "maxLength 1,000,000,000": lambda: _object({"x": {"type": "string", "maxLength": 10**9}}),
    "16 different maxLength up to 16,000 (the limit)": lambda: _bounded(16, 1_000),
    "17 different maxLength": lambda: _bounded(17, 100),
    "4,096 items of 10,000 characters": _items_of_text,
    "oneOf in oneOf, 6 deep": lambda: _nested_choice(6),
    "oneOf in oneOf, 10 deep": lambda: _nested_choice(10),
    "oneOf in oneOf, 16 deep": lambda: _nested_choice(16),
    "oneOf of 128 overlapping branches": lambda: _overlapping(128),
    "anyOf of 128 objects (the limit)": lambda: _branches(128),
    "allOf of 12 unions": lambda: _conditions(12),
    "256 optional properties (the limit)": lambda: _optional(256),
    "2,000 optional properties": lambda: _optional(2_000),
    "32 of 64 properties (the limit)": lambda: _counted(64),
    "objects, 15 deep": lambda: _deep(15),
    "objects, 38 deep": lambda: _deep(38),
    "objects, 400 deep": lambda: _deep(400),
    "pattern (?:a{1,99}){1,99}": lambda: _pattern("^(?:a{1,99}){1,99}$"),
    "pattern [a-z]{1,1000}": lambda: _pattern("^[a-z]{1,1000}$"),
    "pattern (?:.{0,100}x){0,100}": lambda: _pattern("^(?:.{0,100}x){0,100}$"),
    "pattern (?:[a-z]{1,100}-){1,100}": lambda: _pattern("^(?:[a-z]{1,100}-){1,100}$"),
    "pattern ^.{0,65535}$": lambda: _pattern("^.{0,65535}$"),
    "pattern (a+)+": lambda: _pattern("^(a+)+$"),
    "5,000 brackets in a pattern": lambda: _pattern("(" * 5_000 + "a" + ")" * 5_000),
    "$ref doubled 12 times, optional": lambda: _doubled(12),
    "$ref doubled 12 times, required": lambda: _doubled(12, "a", "b"),
    "$ref doubled 30 times, optional": lambda: _doubled(30),
    "$ref doubled 30 times, required": lambda: _doubled(30, "a", "b"),
    "$ref to itself, required": _endless,
}
