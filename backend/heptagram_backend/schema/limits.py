"""Bounds on what a schema may cost: a grammar compile cannot be cancelled, so its size is limited beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes

_ADVICE: Final = {
    codes.SCHEMA_TOO_LARGE: "simplify the schema, or constrain fewer tools at once",
    codes.SCHEMA_TOO_DEEP: "flatten it",
    codes.ENUM_TOO_LARGE: "list fewer or shorter values, or write a `pattern`",
    codes.TOO_MANY_PROPERTIES: "group them into objects, or split the tool",
    codes.TOO_MANY_BRANCHES: "write fewer, or split the tool",
    codes.PATTERN_TOO_LARGE: "shorten it",
    codes.STRING_TOO_LONG: "lower it",
    codes.REPETITION_TOO_LARGE: "lower the counts",
}


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """Per request, over all its schemas, unless said otherwise. Part of ``limits`` in ``release.yaml``."""

    bytes: int = 1 << 20  # of JSON text
    depth: int = 40  # of one schema, counted in subschemas
    nodes: int = 8_000  # subschemas after resolving $ref and allOf
    properties: int = 256  # of one object
    counted_properties: int = 64  # of one object with minProperties or maxProperties; quadratic time
    branches: int = 128  # of one anyOf or oneOf
    enum_values: int = 2_000
    enum_characters: int = 65_536
    pattern_characters: int = 1_024  # of one pattern
    pattern_cost: int = 20_000  # of all patterns, in atoms, counted as often as they are repeated
    bounded_strings: int = 16  # different patterns with a counted repetition
    min_length: int = 1_024
    max_length: int = 16_384  # longer ones are lowered to it
    items: int = 4_096  # of minItems; longer maxItems are lowered to it
    grammar_characters: int = 32_768  # of a guided grammar
    grammar_rules: int = 400  # of a guided grammar; a chain of 1,500 compiled for 8 s


@dataclass(slots=True)
class Budget:
    """What one request has used of its limits."""

    limits: SchemaLimits = field(default_factory=SchemaLimits)
    bytes: int = 0
    nodes: int = 0
    enum_values: int = 0
    enum_characters: int = 0
    pattern_cost: int = 0
    bounded: set[str] = field(default_factory=set)

    def text(self, param: str, schema: Any) -> None:
        """Count one whole schema as it was sent in the field ``param``, before it is walked.

        Raises:
            RequestError: the schemas are too large; so does every method here.
        """
        self.bytes += len(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())
        self.count(Place(param), self.bytes, self.limits.bytes, "bytes of schemas", codes.SCHEMA_TOO_LARGE)

    def node(self, place: Place, depth: int) -> None:
        """Count one visited subschema."""
        self.nodes += 1
        self.count(place, depth, self.limits.depth, "schemas inside each other", codes.SCHEMA_TOO_DEEP)
        what = "subschemas after resolving $ref and allOf"
        self.count(place, self.nodes, self.limits.nodes, what, codes.SCHEMA_TOO_LARGE)

    def enum(self, place: Place, values: int, characters: int) -> None:
        self.enum_values += values
        self.enum_characters += characters
        self.count(place, self.enum_values, self.limits.enum_values, "enum values", codes.ENUM_TOO_LARGE)
        what = "characters of enum values"
        self.count(place, self.enum_characters, self.limits.enum_characters, what, codes.ENUM_TOO_LARGE)

    def pattern(self, place: Place, cost: int) -> None:
        self.pattern_cost += cost
        what = "pattern atoms with their repetitions"
        self.count(place, self.pattern_cost, self.limits.pattern_cost, what, codes.REPETITION_TOO_LARGE)

    def bounded_string(self, place: Place, pattern: str) -> None:
        """Count a pattern with a counted repetition; the same one twice is compiled once."""
        self.bounded.add(pattern)
        what = "different length limits of strings"
        self.count(place, len(self.bounded), self.limits.bounded_strings, what, codes.REPETITION_TOO_LARGE)

    def count(self, place: Place, number: int, limit: int, what: str, code: str = codes.SCHEMA_TOO_LARGE) -> None:
        if number > limit:
            raise place.refuse(f"more than {limit} {what}; {_ADVICE[code]}", code=code)
