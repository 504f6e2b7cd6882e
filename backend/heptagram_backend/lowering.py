"""Structural tags lowered to grammars: the parts that are plain grammar become *one*, with the rules of JSON shared.

A structural tag cannot ask for canonical JSON, and it compiles each ``json_schema`` node apart: the mask tables of a
JSON string are then made once per tool. In one grammar they are made once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from heptagram_backend.ebnf import Rules, literal, renamed, write
from heptagram_backend.errors import EngineError

JsonGrammar = Callable[[str], Rules]


def lower(node: Any, json_grammar: JsonGrammar) -> Any:
    """Put one grammar node in the place of each largest part of a structural tag that needs no more than a grammar.

    Args:
        node: a structural tag, or a part of one.
        json_grammar: makes the rules of a JSON Schema, given as text; rules named ``basic_...`` are the same for all.
    """
    if isinstance(node, list):
        return [lower(item, json_grammar) for item in node]
    if not isinstance(node, dict):
        return node
    part = _Part(json_grammar)
    body = part.body(node)
    if body is not None:
        return {"type": "grammar", "grammar": write({**part.rules, "root": body})}
    return {key: lower(value, json_grammar) for key, value in node.items()}


class _Part:
    """The rules of one grammar node while it is built."""

    def __init__(self, json_grammar: JsonGrammar) -> None:
        self.rules: dict[str, str] = {}
        self._json_grammar = json_grammar
        self._schemas: dict[str, str] = {}  # root rule by schema
        self._numbered = 0  # shared rules included, so that no number is given twice

    def body(self, node: Any) -> str | None:
        """``node`` as a body; ``None`` when it, or a part of it, is more than a grammar."""
        match node:
            case {"type": "const_string", "value": str(value)}:
                return literal(value)
            case {"type": "json_schema", "json_schema": schema, **more} if more.get("style", "json") == "json":
                return self._schema(json.dumps(schema))
            case {"type": "sequence", "elements": list(elements)}:
                return self._joined(elements, " ")
            case {"type": "or", "elements": list(elements)}:
                return self._joined(elements, " | ")
            case {"type": "optional", "content": content}:
                inner = self.body(content)
                return None if inner is None else f'("" | {inner})'
            case {"type": "tag", "begin": str(begin), "content": content, "end": str(end)}:
                inner = self.body(content)
                return None if inner is None else f"({literal(begin)} {inner} {literal(end)})"
            case {"type": "tags_with_separator", "tags": list(tags), "separator": str(separator), **more}:
                return self._tags(tags, separator, **{key: more.get(key) is True for key in _OPTIONS})
        return None

    def _joined(self, nodes: Sequence[Any], joint: str) -> str | None:
        bodies = [body for node in nodes if (body := self.body(node)) is not None]
        return f"({joint.join(bodies)})" if bodies and len(bodies) == len(nodes) else None

    def _tags(self, tags: Sequence[Any], separator: str, *, at_least_one: bool, stop_after_first: bool) -> str | None:
        one = self._joined(tags, " | ")
        if one is None:
            return None
        name = f"tag_{len(self.rules)}"
        self.rules[name] = one
        several = name if stop_after_first else f"({name} ({literal(separator)} {name})*)"
        return several if at_least_one else f'("" | {several})'

    def _schema(self, schema: str) -> str:
        if schema not in self._schemas:
            self._schemas[schema] = self._add(self._json_grammar(schema))
        return self._schemas[schema]

    def _add(self, rules: Rules) -> str:
        """Take over the rules of a schema; returns the new name of its root."""
        start, self._numbered = self._numbered, self._numbered + len(rules)
        names = {
            name: name if name.startswith("basic_") else f"json_{start + place}" for place, name in enumerate(rules)
        }
        for name, body in rules.items():
            body = renamed(body, names.__getitem__)
            if self.rules.setdefault(names[name], body) != body:
                raise EngineError(f"the grammar library writes {name} in two ways; install the pinned version")
        return names["root"]


_OPTIONS = ("at_least_one", "stop_after_first")
