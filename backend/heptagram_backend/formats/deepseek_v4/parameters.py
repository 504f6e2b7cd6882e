"""The parameters of one call as a structural tag: each is spelled as its schema says, raw or as JSON.

Strings stand raw under ``string="true"`` and never hold the marker; everything else is JSON under ``string="false"``;
a union of both may be spelled both ways. A length, a pattern and a format hold for the raw text. A string with a
pattern or a format, and the first characters of one with ``minLength`` of 2 or more, hold no U+FF5C, the marker's bar.
A string inside JSON may hold anything, tags too: the parser reads JSON first and looks for the end tag behind it.

With ``heptagram.unenforced: "validate"`` the counts and the names of undeclared parameters are left to the check of the
finished call.
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
from heptagram_backend.schema import Budget
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.vet import Vet

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
            RequestError: a name or a value cannot be written in the markup, or undeclared names would be needed and
                the request wants all enforced.
        """
        assert tool.enforced is not None
        forms = list(branches(tool.enforced, tool.enforced.get("$defs", {})))
        for form in forms:
            _require_writable(form, tool, place)
        return either([self._object(form, tool.enforced.get("$defs", {}), place) for form in forms])

    def free(self) -> Node:
        """Any parameters. Only that no name comes twice cannot be held; the parser leaves such a call unfinished."""
        return self._undeclared({}, {}, Place(""))

    def _object(self, schema: Schema, definitions: Schema, place: Place) -> Node:
        if "const" in schema:
            values = schema["const"]
            schema = {"properties": {key: {"const": value} for key, value in values.items()}, "required": list(values)}
        if "properties" not in schema:
            return self._undeclared(schema["additionalProperties"], definitions, place / "additionalProperties")
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

    def _undeclared(self, schema: Schema, definitions: Schema, place: Place) -> Node:
        """Parameters of any names, each with a value of ``schema``."""
        name: Node = {
            "type": "raw_text",
            "excludes": DSML,
            "min_chars": 1,
            "max_tokens": _NAME_TOKENS,
            "other_than": UNWRITABLE,
        }
        content = sequence([name, self._value(schema, definitions, place)])
        several: Node = {
            "type": "tags_with_separator",
            "tags": [{"type": "tag", "begin": self.dsml.parameter_begin, "content": content, "end": ""}],
            "separator": "",
            "at_least_one": True,
        }
        return either([const(SEPARATOR), several])

    def _parameter(self, name: str, schema: Schema, definitions: Schema, place: Place) -> Node:
        here = place / "properties" / name
        if fault := name_fault(name):
            raise here.refuse(fault)
        return sequence([const(self.dsml.parameter_begin + name), self._value(schema, definitions, here)])

    def _value(self, schema: Schema, definitions: Schema, place: Place) -> Node:
        raws: list[Node] = []
        others: list[Schema] = []
        for branch in branches(schema, definitions):
            if branch.get("type") == "string" or isinstance(branch.get("const"), str):
                raws.append(raw_string(branch, DSML, self.bounds, place))
            elif not branch:
                raws.append(raw_text(DSML, self.bounds))
                others += _NO_STRING
            else:
                others.append(branch)
        spellings = [self._raw(raws)] if raws else []
        if others:
            spellings.append(self._json(others, definitions))
        return either(spellings)

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


def _require_writable(form: Schema, tool: Tool, place: Place) -> None:
    """Leave to the check of the finished call what the markup cannot hold of the parameters as a whole.

    Raises:
        RequestError: the request wants it refused, or the check cannot decide it.
    """
    if "const" in form:
        return
    counts = [key for key in ("minProperties", "maxProperties") if key in form]
    for key in counts:
        (place / key).leave("cannot be enforced for the parameters of this format; leave it out")
    if "properties" not in form:
        place.leave("undeclared parameters cannot be held apart here; declare `properties`, or drop strict")
    if counts or "properties" not in form:
        Vet(tool.parameters, Budget()).read(tool.parameters, place)
