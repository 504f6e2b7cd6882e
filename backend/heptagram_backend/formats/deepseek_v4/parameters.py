"""The parameters of one call as a structural tag: each is spelled as its schema says, raw or as JSON.

Strings stand raw under ``string="true"`` and never hold the marker; everything else is JSON under ``string="false"``;
a union of both may be spelled both ways. A length, a pattern and a format hold for the raw text. A string with a
pattern or a format, and the first characters of one with ``minLength`` of 2 or more, hold no U+FF5C, the marker's bar.
A string inside JSON may hold anything, tags too: the parser reads JSON first and looks for the end tag behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.arrangement import ANY_ORDER
from heptagram_backend.caller_grammar import of_regex
from heptagram_backend.conversation import Tool
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.deepseek_v4.markup import DSML, SEPARATOR, Dsml
from heptagram_backend.formats.json_value import Node, Schema, json_node
from heptagram_backend.raw_text import plain_characters
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.regex import parse
from heptagram_backend.schema.render import narrowed, with_lengths

_NAME_CHARACTERS: Final = 256
_UNWRITABLE: Final = '"<>' + "".join(map(chr, range(0x20))) + "\x7f"
_NO_NAME: Final = re.compile(f"[{re.escape(_UNWRITABLE)}\ud800-\udfff]|{DSML}")
_NAME_TOKENS: Final = 32
_ARRAY: Final[Schema] = {"type": "array", "items": {}}
_OBJECT: Final[Schema] = {"type": "object", "additionalProperties": {}}
_NO_STRING: Final = (_OBJECT, _ARRAY, {"type": "number"}, {"type": "boolean"}, {"type": "null"})


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
        return either([self._object(branch, definitions, place) for branch in _branches(tool.enforced, definitions)])

    def free(self) -> Node:
        """Any parameters. Only that no name comes twice cannot be held; the parser leaves such a call unfinished."""
        name: Node = {
            "type": "raw_text",
            "excludes": DSML,
            "min_chars": 1,
            "max_tokens": _NAME_TOKENS,
            "other_than": _UNWRITABLE,
        }
        content = sequence([name, either([self._raw([self._text()]), self._json(_NO_STRING, {})])])
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
        for branch in _branches(schema, definitions):
            if branch.get("type") == "string" or isinstance(branch.get("const"), str):
                raws.append(self._string(branch, here))
            elif not branch:
                raws.append(self._text())
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
        value = json_node({**schema, **({"$defs": definitions} if _refers(kept) else {})}, self.bounds)
        begin = const(self.dsml.before_value(string=False))
        return shared(sequence([begin, value, const(self.dsml.parameter_end + SEPARATOR)]))

    def _text(self) -> Node:
        return {"type": "raw_text", "excludes": DSML, "max_tokens": self.bounds.string_tokens}

    def _string(self, schema: Schema, place: Place) -> Node:
        if "const" in schema:
            if DSML in schema["const"]:
                raise place.refuse(f"a value holds {DSML}, which ends a raw string; leave it out")
            return const(schema["const"])
        raw = schema.get("raw")
        if raw is None:
            return self._text()
        low, high = raw.get("minLength", 0), raw.get("maxLength")
        if "pattern" not in raw:
            return {**self._text(), "min_chars": low, **({} if high is None else {"max_chars": high})}
        tree = with_lengths(parse(raw["pattern"]), low, high)
        grammar = None if tree is None else of_regex(narrowed(tree, plain_characters(DSML)))
        if grammar is None:
            raise place.refuse("the pattern demands U+FF5C, which a raw string must not hold here; change it")
        return {"type": "ebnf", "grammar": grammar}


def name_fault(name: str) -> str | None:
    """Why the markup cannot carry the name: it is empty, too long, or holds what ends an attribute."""
    if name and len(name) <= _NAME_CHARACTERS and not _NO_NAME.search(name):
        return None
    return (
        f"the name cannot be written in this model's markup; use 1 to {_NAME_CHARACTERS} characters without quotes, "
        "angle brackets and control characters"
    )


def _refers(node: Any) -> bool:
    children = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return (isinstance(node, Mapping) and "$ref" in node) or any(map(_refers, children))


def _branches(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """The forms that a value may have, without references, unions and enums at this place."""
    if "$ref" in schema:
        yield from _branches(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    elif "anyOf" in schema:
        for branch in schema["anyOf"]:
            yield from _branches(branch, definitions)
    elif "enum" in schema:
        yield from ({"const": value} for value in schema["enum"])
    else:
        yield {key: value for key, value in schema.items() if key != "$defs"}


def const(text: str) -> Node:
    return {"type": "const_string", "value": text}


def sequence(elements: Sequence[Node]) -> Node:
    return {"type": "sequence", "elements": list(elements)}


def either(elements: Sequence[Node]) -> Node:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def shared(content: Node) -> Node:
    return {"type": "shared", "content": content}
