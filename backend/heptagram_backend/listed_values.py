"""Objects and arrays in ``enum`` and ``const``, written as all JSON of a constraint is. No grammar library.

XGrammar 0.2.7 writes them without blanks, whatever separators it is told. So they go through it as short texts, and
what it made of these becomes the JSON that was meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.ebnf import LITERAL_OR_CLASS, Rules, literal

_MAPS: Final = ("properties", "$defs")


class ListedValues:
    """The objects and arrays of one schema: :meth:`hidden` goes into the library, :meth:`shown` takes what came out."""

    def __init__(self, schema: str) -> None:
        self._mark = "listed"
        while self._mark in schema:
            self._mark += "_"
        self._literals: dict[str, str] = {}  # by what the library writes
        self.hidden = json.dumps(self._hide(json.loads(schema)))

    def shown(self, rules: Rules) -> Rules:
        """The rules of the schema, from those of :attr:`hidden`."""
        if not self._literals:
            return rules
        return {
            name: LITERAL_OR_CLASS.sub(lambda match: self._literals.get(match[0], match[0]), body)
            for name, body in rules.items()
        }

    def _hide(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._hide(child) for child in node]
        if not isinstance(node, Mapping):
            return node
        return {key: self._hidden_under(key, child) for key, child in node.items()}

    def _hidden_under(self, key: str, child: Any) -> Any:
        if key == "const":
            return self._marked(child)
        if key == "enum" and isinstance(child, list):
            return [self._marked(value) for value in child]
        if key in _MAPS and isinstance(child, Mapping):
            return {name: self._hide(each) for name, each in child.items()}
        return self._hide(child)

    def _marked(self, value: Any) -> Any:
        if not isinstance(value, list | Mapping):
            return value
        mark = f"{self._mark}{len(self._literals)}"
        self._literals[rf'"\"{mark}\""'] = literal(json.dumps(value, ensure_ascii=False))
        return mark
