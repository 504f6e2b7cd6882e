"""The parameters of one call as a structural tag, so that what is written is read as it was meant.

The parser takes text for JSON where it is JSON of a declared type, see ``types.py``. A union of a string and others is
therefore written raw, which includes their JSON, but for others that are held to more than their type: their JSON is
written as such, and a raw string then does not begin as that JSON does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from heptagram_backend.arrangement import ANY_ORDER
from heptagram_backend.conversation import Tool
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.json_value import ANY_OBJECT, Schema, json_node
from heptagram_backend.formats.nodes import Node, const, either, optional, sequence, several, shared, tag
from heptagram_backend.formats.qwen3_xml.markup import (
    AFTER_NAME,
    AFTER_VALUE,
    END_TAG,
    PARAMETER_BEGIN,
    UNWRITABLE,
    name_fault,
)
from heptagram_backend.formats.qwen3_xml.types import json_text, starts, types_of
from heptagram_backend.formats.raw_value import branches, raw_string, raw_text, refers
from heptagram_backend.schema.place import Place

_NAME_TOKENS: Final = 32
_FREE: Final = (
    ANY_OBJECT,
    {"type": "array", "items": {}},
    *({"type": name} for name in ("number", "integer", "boolean", "null")),
)


class ParameterTags:
    """Builds the parameters of one tool, whose schema is enforced; ``place`` is its schema in the request."""

    def __init__(self, tool: Tool, bounds: AnswerBounds, place: Place) -> None:
        assert tool.enforced is not None
        self._schema = tool.enforced
        self._definitions: Schema = tool.enforced.get("$defs", {})
        self._bounds = bounds
        self._place = place

    def all(self) -> Node:
        """What stands inside a call.

        Raises:
            RequestError: a name or a value cannot be written in the markup, or undeclared names would be needed.
        """
        return either([self._object(branch) for branch in branches(self._schema, self._definitions)])

    def _object(self, schema: Schema) -> Node:
        if "const" in schema:
            values = schema["const"]
            schema = {"properties": {key: {"const": value} for key, value in values.items()}, "required": list(values)}
        if "properties" not in schema:
            raise self._place.refuse(
                "undeclared parameters cannot be held apart here; declare `properties`, or drop strict"
            )
        for key in ("minProperties", "maxProperties"):
            if key in schema:
                raise (self._place / key).refuse("cannot be enforced for the parameters of this format; leave it out")
        elements = [
            {"content": self._parameter(name, node), "optional": name not in schema["required"]}
            for name, node in schema["properties"].items()
        ]
        free = len(elements) <= ANY_ORDER
        return {"type": "arranged", "elements": elements, "otherwise": const(""), "any_order": free}

    def _parameter(self, name: str, schema: Schema) -> Node:
        here = self._place / "properties" / name
        if fault := name_fault(name):
            raise here.refuse(fault)
        strings: list[Schema] = []
        others: list[Schema] = []
        for branch in branches(schema, self._definitions):
            is_string = branch.get("type") == "string" or isinstance(branch.get("const"), str)
            (strings if is_string or not branch else others).append(branch)
        value = self._value(strings, others, here)
        return sequence([const(f"{PARAMETER_BEGIN}{name}{AFTER_NAME}"), shared(sequence([value, const(AFTER_VALUE)]))])

    def _value(self, strings: Sequence[Schema], others: Sequence[Schema], place: Place) -> Node:
        if not strings:
            return self._json(others)
        held = [schema for schema in others if schema not in _FREE]
        avoid = starts(types_of({"anyOf": held}, self._schema)) if held else ""
        if any(schema.keys() <= {"type"} for schema in strings):
            return self._any_text(avoid) if not held else either([self._any_text(avoid), self._json(others)])
        types = types_of({"anyOf": [*strings, *others]}, self._schema)
        raws = [self._string(schema, types, avoid, place) for schema in strings]
        return either([*raws, self._json(others)] if others else raws)

    def _any_text(self, avoid: str) -> Node:
        return raw_text(END_TAG, self._bounds) | ({"not_first": avoid} if avoid else {})

    def _string(self, schema: Schema, types: frozenset[str], avoid: str, place: Place) -> Node:
        """A string that is held to more than its type, beside other types."""
        value = schema.get("const")
        if value is not None and json_text(value, types)[:1] != '"':
            raise place.refuse(f"the text {value!r} is read as JSON of another declared type here; leave it out")
        if value is None and avoid:
            raise place.refuse(
                "a string that is held to more than its type cannot be told from the other types here; declare the "
                "string alone, or give the other types no further keywords"
            )
        return raw_string(schema, END_TAG, self._bounds, place)

    def _json(self, schemas: Sequence[Schema]) -> Node:
        listed = [schema["const"] for schema in schemas if "const" in schema]
        kept: list[Any] = [schema for schema in schemas if "const" not in schema]
        kept += [{"enum": listed}] if listed else []
        schema = kept[0] if len(kept) == 1 else {"anyOf": kept}
        return json_node({**schema, **({"$defs": self._definitions} if refers(kept) else {})}, self._bounds)


def free_parameters(bounds: AnswerBounds) -> Node:
    """Any parameters with any text. Only that no name comes twice cannot be held: such a call stays unfinished."""
    name: Node = {"type": "raw_text", "min_chars": 1, "max_tokens": _NAME_TOKENS, "other_than": UNWRITABLE}
    parameter = tag(PARAMETER_BEGIN, sequence([name, const(AFTER_NAME), raw_text(END_TAG, bounds)]), AFTER_VALUE)
    return optional(several([parameter], ""))
