"""Structural tags lowered to grammars: the parts that are plain grammar become *one*, with the rules of JSON shared.

A structural tag cannot ask for canonical JSON, and it compiles each ``json_schema`` node apart: the mask tables of a
JSON string are then made once per tool. In one grammar they are made once.

Four nodes are ours; what holds one of them must be plain grammar in all its parts:

- ``shared``: its ``content``, written once however often it stands;
- ``arranged``: ``elements``, each with ``content`` and ``optional``, in their order or (``any_order``) in any;
  ``otherwise`` stands where none of them does;
- ``raw_text``: text without ``excludes`` (a word between two bars, or a tag) and without the characters ``other_than``,
  of ``min_chars`` to ``max_chars`` characters, or of about ``max_tokens`` tokens at most; it begins with none of
  ``not_first``;
- ``ebnf``: rules, one a line, the first of them ``root``.

``max_string_tokens`` of a ``json_schema`` bounds the strings of the JSON that have no length of their own, and
``max_items`` the arrays and objects within values of any kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from heptagram_backend.arrangement import ANY_ORDER, any_order, in_order
from heptagram_backend.ebnf import SPLIT_STRING, STRING_INSIDE, Rules, containers, literal, read, renamed, write
from heptagram_backend.errors import EngineError
from heptagram_backend.raw_text import text_without, text_without_tag

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
        return {"type": "grammar", "grammar": write({**part.rules, **part.replaced, "root": body}, part.budgets)}
    return {key: lower(value, json_grammar) for key, value in node.items()}


class _Part:
    """The rules of one grammar node while it is built."""

    def __init__(self, json_grammar: JsonGrammar) -> None:
        self.rules: dict[str, str] = {}
        self.replaced: dict[str, str] = {}  # rules of JSON that are written in another way
        self.budgets: dict[str, str] = {}  # what a rule may use up, such as max_tokens=9
        self._json_grammar = json_grammar
        self._shared: dict[str, str] = {}  # root rule by what it was made of
        self._numbered = 0  # shared rules included, so that no number is given twice

    def body(self, node: Any) -> str | None:
        """``node`` as a body; ``None`` when it, or a part of it, is more than a grammar."""
        match node:
            case {"type": "const_string", "value": str(value)}:
                return literal(value)
            case {"type": "json_schema", "json_schema": schema, **more} if more.get("style", "json") == "json":
                return self._schema(json.dumps(schema), node.get("max_string_tokens"), node.get("max_items"))
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
            case {"type": "shared", "content": content}:
                return self._once(json.dumps(content), "part", lambda: self._needed(content))
            case {"type": "ebnf", "grammar": str(grammar)}:
                return self._once(grammar, "ebnf", lambda: self._add(read(grammar)))
            case {"type": "raw_text"}:
                return self._once(json.dumps(node), "raw", lambda: self._raw_text(node))
            case {"type": "arranged", "elements": list(elements), "otherwise": otherwise, **more}:
                return self._arranged(elements, otherwise, free=more.get("any_order") is True)
        return None

    def _needed(self, node: Any) -> str:
        body = self.body(node)
        assert body is not None, "a part of one of our own nodes is more than a grammar"
        return body

    def _once(self, key: str, kind: str, make: Callable[[], str]) -> str:
        """The rule of ``key``, which is made when it is asked for first."""
        if key not in self._shared:
            body = make()
            if body not in self.rules:
                name = f"{kind}_{len(self._shared)}"
                self.rules[name], body = body, name
            self._shared[key] = body
        return self._shared[key]

    def _raw_text(self, node: Any) -> str:
        least, most, tokens = node.get("min_chars", 0), node.get("max_chars"), node.get("max_tokens")
        name = f"text_{len(self.rules)}"
        given = {key: node[key] for key in ("other_than", "not_first") if key in node}
        marker = node.get("excludes", "")
        if marker[-1:] == marker[:1] != "":
            first, self.rules[name] = text_without(marker, least=least, **given)
        else:
            first, rules = text_without_tag(marker, name, least=least, **given)
            self.rules |= rules
        if most is not None:
            self.budgets[name] = f"max_chars={most - (least if least > 1 else 0)}"
        elif tokens is not None:
            self.budgets[name] = f"max_tokens={tokens}"
        return f"({first} {name})"

    def _arranged(self, elements: Sequence[Any], otherwise: Any, *, free: bool) -> str:
        name = f"arranged_{len(self.rules)}"
        arrange = any_order if free and len(elements) <= ANY_ORDER else in_order
        parts = [self._needed({"type": "shared", "content": element["content"]}) for element in elements]
        optional = [bool(element["optional"]) for element in elements]
        self.rules |= arrange(parts, optional, self._needed(otherwise), name)
        return name

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

    def _schema(self, schema: str, string_tokens: int | None, items: int | None) -> str:
        name = self._once(schema, "schema", lambda: self._add(self._json_grammar(schema)))
        if string_tokens is not None and "basic_string" in self.rules:
            self.replaced |= SPLIT_STRING
            self.budgets[STRING_INSIDE] = f"max_tokens={string_tokens}"
        if items is not None:
            self.replaced |= {name: body for name, body in containers(items).items() if name in self.rules}
        return name

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
