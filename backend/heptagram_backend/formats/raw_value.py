"""Strings that stand raw between two tags, as nodes of a structural tag, and the forms that a value may have.

``marker`` is what a raw string never holds: a word between two equal bars, or an end tag. A length, a pattern and a
format hold for the raw text. A string with a pattern or a format, and the first characters of one with ``minLength`` of
2 or more, hold nothing of the character that the marker begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heptagram_backend.caller_grammar import of_regex
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.json_value import Schema
from heptagram_backend.formats.nodes import Node, const
from heptagram_backend.raw_text import plain_characters
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.regex import parse
from heptagram_backend.schema.render import narrowed, with_lengths
from heptagram_backend.schema.rounds import shortened


def raw_text(marker: str, bounds: AnswerBounds) -> Node:
    """Any text without ``marker``."""
    return {"type": "raw_text", "excludes": marker, "max_tokens": bounds.string_tokens}


def raw_string(schema: Schema, marker: str, bounds: AnswerBounds, place: Place) -> Node:
    """A string of ``schema``, which is one branch of what the walker made; ``place`` is its parameter's.

    Raises:
        RequestError: the markup can carry none of its values.
    """
    if "const" in schema:
        if marker in schema["const"]:
            raise place.refuse(f"a value holds {marker}, which ends a raw string; leave it out")
        return const(schema["const"])
    raw = schema.get("raw")
    if raw is None:
        return raw_text(marker, bounds)
    low, high = raw.get("minLength", 0), raw.get("maxLength")
    if "pattern" not in raw:
        return {**raw_text(marker, bounds), "min_chars": low, **({} if high is None else {"max_chars": high})}
    tree = with_lengths(shortened(parse(raw["pattern"])), low, high)
    grammar = None if tree is None else of_regex(narrowed(tree, plain_characters(marker)))
    if grammar is None:
        bar = marker[0] if marker[0].isascii() else f"U+{ord(marker[0]):04X}"
        raise place.refuse(f"the pattern demands {bar}, which a raw string must not hold here; change it")
    return {"type": "ebnf", "grammar": grammar}


def branches(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """The forms that a value may have, without references, unions and enums at this place."""
    if "$ref" in schema:
        yield from branches(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    elif "anyOf" in schema:
        for branch in schema["anyOf"]:
            yield from branches(branch, definitions)
    elif "enum" in schema:
        yield from ({"const": value} for value in schema["enum"])
    else:
        yield {key: value for key, value in schema.items() if key != "$defs"}


def refers(node: Any) -> bool:
    """Is there a reference in it?"""
    children = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return (isinstance(node, Mapping) and "$ref" in node) or any(map(refers, children))
