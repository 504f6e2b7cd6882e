"""The parameters of one call as a structural tag: each is spelled as its schema says, raw or as JSON.

Strings stand raw under ``string="true"`` and never hold the marker; everything else is JSON under ``string="false"``;
a union of both may be spelled both ways. A length, a pattern and a format hold for the raw text. A string with a
pattern or a format, and the first characters of one with ``minLength`` of 2 or more, hold no U+FF5C, the marker's bar.
A string inside JSON may hold anything, tags too: the parser reads JSON first and looks for the end tag behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heptagram_backend.arrangement import ANY_ORDER
from heptagram_backend.conversation import Tool
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.deepseek_v4.markup import DSML, SEPARATOR, UNWRITABLE, Dsml, name_fault
from heptagram_backend.formats.json_value import ANY_OBJECT, Schema, json_node
from heptagram_backend.formats.nodes import Node, const, either, sequence, shared
from heptagram_backend.formats.raw_value import branches, raw_string, raw_text, refers
from heptagram_backend.schema.place import Place

_NAME_TOKENS: Final = 32
_ARRAY: Final[Schema] = {"type": "array", "items": {}}
_NO_STRING: Final = (ANY_OBJECT, _ARRAY, {"type": "number"}, {"type": "boolean"}, {"type": "null"})


@dataclass(frozen=True, slots=True)
class ParameterTags:
    """Builds the tags of one version within the server's bounds."""

    dsml: Dsml
    bounds: AnswerBounds

    def declared(self, tool: Tool, place: Place) -> Node:
        """What stands inside a call of ``tool``, whose schema is enforced; ``place`` is its schema in the request.

        Raises:
            RequestError: a name or a value cannot be written in the markup, or undeclared names would be needed.
        """
        assert tool.enforced is not None
        definitions = tool.enforced.get("$defs", {})
        return either([self._object(branch, definitions, place) for branch in branches(tool.enforced, definitions)])

    def free(self) -> Node:
        """Any parameters. Only that no name comes twice cannot be held; the parser leaves such a call unfinished."""
        name: Node = {
            "type": "raw_text",
            "excludes": DSML,
            "min_chars": 1,
            "max_tokens": _NAME_TOKENS,
            "other_than": UNWRITABLE,
        }
        content = sequence([name, either([self._raw([raw_text(DSML, self.bounds)]), self._json(_NO_STRING, {})])])
        several: Node = {
            "type": "tags_with_separator",
            "tags": [{"type": "tag", "begin": self.dsml.parameter_begin, "content": content, "end": ""}],
            "separator": "",
            "at_least_one": True,
        }
        return either([const(SEPARATOR), several])

    def _object(self, schema: Schema, definitions: Schema, place: Place) -> Node:
        if "const" in schema:
            values = schema["const"]
            schema = {"properties": {key: {"const": value} for key, value in values.items()}, "required": list(values)}
        if "properties" not in schema:
            raise place.refuse("undeclared parameters cannot be held apart here; declare `properties`, or drop strict")
        for key in ("minProperties", "maxProperties"):
            if key in schema:
                raise (place / key).refuse("cannot be enforced for the parameters of this format; leave it out")
        elements = [
            {"content": self._parameter(name, node, definitions, place), "optional": name not in schema["required"]}
            for name, node in schema["properties"].items()
        ]
        return {
            "type": "arranged",
            "elements": elements,
            "otherwise": const(SEPARATOR),
            "any_order": len(elements) <= ANY_ORDER,
        }

    def _parameter(self, name: str, schema: Schema, definitions: Schema, place: Place) -> Node:
        here = place / "properties" / name
        if fault := name_fault(name):
            raise here.refuse(fault)
        raws: list[Node] = []
        others: list[Schema] = []
        for branch in branches(schema, definitions):
            if branch.get("type") == "string" or isinstance(branch.get("const"), str):
                raws.append(raw_string(branch, DSML, self.bounds, here))
            elif not branch:
                raws.append(raw_text(DSML, self.bounds))
                others += _NO_STRING
            else:
                others.append(branch)
        spellings = [self._raw(raws)] if raws else []
        if others:
            spellings.append(self._json(others, definitions))
        return sequence([const(self.dsml.parameter_begin + name), either(spellings)])

    def _raw(self, values: Sequence[Node]) -> Node:
        """From behind the name to the line break behind the end tag: the same for many parameters."""
        begin = const(self.dsml.before_value(string=True))
        return shared(sequence([begin, either(values), const(self.dsml.parameter_end + SEPARATOR)]))

    def _json(self, schemas: Sequence[Schema], definitions: Schema) -> Node:
        listed = [schema["const"] for schema in schemas if "const" in schema]
        kept = [schema for schema in schemas if "const" not in schema] + ([{"enum": listed}] if listed else [])
        schema = kept[0] if len(kept) == 1 else {"anyOf": kept}
        value = json_node({**schema, **({"$defs": definitions} if refers(kept) else {})}, self.bounds)
        begin = const(self.dsml.before_value(string=False))
        return shared(sequence([begin, value, const(self.dsml.parameter_end + SEPARATOR)]))
