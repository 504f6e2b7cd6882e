"""Bounds on what a schema may cost: a grammar compile cannot be cancelled, so its size is limited beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """Per request, over all its schemas, unless said otherwise."""

    depth: int = 40  # of one schema, counted in subschemas
    nodes: int = 8_000
    properties: int = 256  # of one object
    branches: int = 128  # of one anyOf or oneOf
    enum_values: int = 2_000
    enum_characters: int = 65_536
    pattern_characters: int = 1_024  # of one pattern
    pattern_cost: int = 20_000  # of all patterns, in expanded atoms
    bounded_strings: int = 16  # different patterns with a counted repetition
    min_length: int = 1_024
    max_length: int = 16_384  # longer ones are lowered to it
    items: int = 4_096


@dataclass(slots=True)
class Budget:
    """What one request has used of its limits."""

    limits: SchemaLimits = field(default_factory=SchemaLimits)
    nodes: int = 0
    enum_values: int = 0
    enum_characters: int = 0
    pattern_cost: int = 0
    bounded: set[str] = field(default_factory=set)

    def node(self, place: Place, depth: int) -> None:
        """Count one visited subschema.

        Raises:
            RequestError: the schemas are too deep or too large.
        """
        self.nodes += 1
        if depth > self.limits.depth:
            raise place.refuse(f"nested deeper than {self.limits.depth} schemas; flatten it", code=codes.TOO_LARGE)
        self._within(place, self.nodes, self.limits.nodes, "subschemas after resolving $ref and allOf")

    def enum(self, place: Place, values: int, characters: int) -> None:
        self.enum_values += values
        self.enum_characters += characters
        self._within(place, self.enum_values, self.limits.enum_values, "enum values")
        self._within(place, self.enum_characters, self.limits.enum_characters, "characters of enum values")

    def pattern(self, place: Place, cost: int) -> None:
        self.pattern_cost += cost
        self._within(place, self.pattern_cost, self.limits.pattern_cost, "pattern atoms with their repetitions")

    def bounded_string(self, place: Place, pattern: str) -> None:
        """Count a pattern with a counted repetition; the same one twice is compiled once."""
        self.bounded.add(pattern)
        self._within(place, len(self.bounded), self.limits.bounded_strings, "different length limits of strings")

    def count(self, place: Place, number: int, limit: int, what: str) -> None:
        self._within(place, number, limit, what)

    def _within(self, place: Place, number: int, limit: int, what: str) -> None:
        if number > limit:
            raise place.refuse(f"more than {limit} {what}; simplify the schema", code=codes.TOO_LARGE)
