"""Values to try on a schema: drawn to be valid, and bent to be invalid. A validator judges them all, none is trusted.

hypothesis-jsonschema would draw them, but its last release fails on objects with today's hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

_DEPTH: Final = 6
_WORDS: Final = (
    "",
    "a",
    "Zürich",
    "two words",
    'a "quoted" word',
    "back\\slash",
    "line\nbreak",
    "</｜DSML｜x>",
    "漢😀",
)
_OF_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("2024-02-29", "1999-12-31"),
    "time": ("10:20:30Z", "23:59:59.25+01:00"),
    "date-time": ("2024-02-29T10:20:30Z",),
    "duration": ("P3D", "PT1H30M", "P2W"),
    "email": ("ada@example.org",),
    "hostname": ("www.example.org",),
    "ipv4": ("192.168.0.1",),
    "ipv6": ("::1", "2001:db8::7"),
    "uuid": ("12345678-1234-4abc-8def-123456789abc",),
    "uri": ("https://example.org/a?b=c#d",),
    "uri-reference": ("/a/b?c",),
    "json-pointer": ("/a/0",),
}
_ANYTHING: Final[tuple[Any, ...]] = (None, True, 0, -7, 2.5, "x", [], [1, "a"], {}, {"k": [None]})


class Drawer:
    """Draws values of one schema. They follow most keywords; ``pattern`` and ``not`` are left to luck."""

    def __init__(self, root: Any, chance: random.Random) -> None:
        self._root = root
        self._chance = chance

    def value(self, schema: Any, depth: int = 0) -> Any:
        if not isinstance(schema, dict) or depth > _DEPTH:
            return self._chance.choice(_ANYTHING)
        if "$ref" in schema:
            return self.value(self._target(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(listed := schema.get("enum"), list) and listed:
            return self._chance.choice(listed)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value(_joined(rest, self._chance.choice(schema[key])), depth + 1)
        if "allOf" in schema:
            whole: Any = {name: value for name, value in schema.items() if name != "allOf"}
            for part in schema["allOf"]:
                whole = _joined(whole, part)
            return self.value(whole, depth + 1)
        return self._typed(schema, depth)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = schema.get("type") or _spoken_of(schema)
        if isinstance(kind, list):
            kind = self._chance.choice(kind)
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._chance.random() < 0.5
            case "null":
                return None
        return self._chance.choice(_ANYTHING)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        declared, required = schema.get("properties", {}), schema.get("required", [])
        often = 0.6 if depth < _DEPTH // 2 else 0.1
        names = [name for name in declared if name in required or self._chance.random() < often]
        value = {name: self.value(declared[name], depth + 1) for name in names}
        others = schema.get("additionalProperties", True)
        value |= {name: self.value(others, depth + 1) for name in required if name not in declared}
        if not declared and isinstance(others, dict):
            value |= {name: self.value(others, depth + 1) for name in self._chance.sample("abc", 2)}
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = int(schema.get("minItems", 0))
        most = int(schema.get("maxItems", least + 2))
        heads = [self.value(head, depth + 1) for head in schema.get("prefixItems", [])]
        count = self._chance.randint(least, max(least, min(most, least + 2)))
        items = [self.value(schema.get("items", True), depth + 1) for _ in range(count - len(heads))]
        return [*heads, *items][: max(count, least)]

    def _string(self, schema: Mapping[str, Any]) -> str:
        if known := _OF_FORMATS.get(schema.get("format", "")):
            return self._chance.choice(known)
        text = self._chance.choice(_WORDS)
        least = int(schema.get("minLength", 0))
        text += "é" * (least - len(text))
        return text[: int(schema.get("maxLength", len(text)))]

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -20) + 1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 41) - 1)
        step = schema.get("multipleOf", 1)
        drawn: float = self._chance.randint(*sorted((int(low), int(high)))) // step * step
        return drawn if whole or self._chance.random() < 0.5 else drawn + self._chance.choice((0.5, 0.25, 0.000001))

    def _target(self, reference: str) -> Any:
        node = self._root
        for key in reference.removeprefix("#").split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            node = node[int(key)] if isinstance(node, list) else node.get(key, True)
        return node


def bent(value: Any, chance: random.Random) -> Any:
    """``value`` with one thing changed somewhere: most schemas then refuse it, and near-valid ones are the hardest."""
    if isinstance(value, dict) and value and chance.random() < 0.7:
        key = chance.choice(list(value))
        return {**value, key: bent(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        return [*value[:place], bent(value[place], chance), *value[place + 1 :]]
    bends = _BENDS.get(type(value), ())
    return chance.choice(bends)(value) if bends and chance.random() < 0.8 else chance.choice(_ANYTHING)


def _without_one(value: dict[str, Any]) -> dict[str, Any]:
    return dict(list(value.items())[1:])


_BENDS: Final[Mapping[type, tuple[Callable[[Any], Any], ...]]] = {
    dict: (_without_one, lambda value: {**value, "undeclared": 1}, lambda value: dict(reversed(value.items()))),
    list: (lambda value: value[1:], lambda value: value + value[-1:], lambda value: [*value, None]),
    str: (lambda text: text[:-1], lambda text: text + "x", lambda text: text * 3, str.upper, lambda text: [text]),
    int: (lambda number: number + 1, lambda number: -number, float, lambda number: number * 1000, str),
    float: (lambda number: number + 1, lambda number: -number, str),
    bool: (lambda flag: not flag, str, int),
}


def _joined(schema: Any, other: Any) -> Any:
    """Both at once, roughly: of what both say, objects of properties and required names are joined."""
    if not isinstance(schema, dict) or not isinstance(other, dict):
        return other if isinstance(other, dict) else schema
    both = {**schema, **other}
    for key in ("properties", "$defs"):
        if key in schema and key in other:
            both[key] = {**schema[key], **other[key]}
    if "required" in schema and "required" in other:
        both["required"] = [*schema["required"], *other["required"]]
    return both


def _spoken_of(schema: Mapping[str, Any]) -> str | None:
    """The type that keywords speak of where none is named."""
    groups = {"object": ("properties", "required", "additionalProperties"), "array": ("items", "prefixItems")}
    return next((kind for kind, keys in groups.items() if not schema.keys().isdisjoint(keys)), None)
