"""JSON inside a constraint, within the server's bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.nodes import Node, tag_spec

Schema = Mapping[str, Any]

ANY_OBJECT: Final[Schema] = {"type": "object", "additionalProperties": {}}
_MAPS: Final = ("properties", "$defs")


def json_node(schema: Schema, bounds: AnswerBounds) -> Node:
    """A JSON value whose strings, arrays and maps end; ``schema`` is what the walker made."""
    return {
        "type": "json_schema",
        "json_schema": _bounded(schema, bounds.array_items),
        "max_string_tokens": bounds.string_tokens,
        "max_items": bounds.array_items,
    }


def bounded(spec: ConstraintSpec, bounds: AnswerBounds) -> ConstraintSpec:
    """A constraint that is a JSON Schema as one within ``bounds``. What is none stands for itself: the caller wrote
    its repetitions."""
    return tag_spec(json_node(json.loads(spec.source), bounds)) if spec.kind == "json_schema" else spec


def _bounded(node: Any, items: int) -> Any:
    if isinstance(node, list):
        return [_bounded(child, items) for child in node]
    if not isinstance(node, Mapping) or "const" in node or "enum" in node:
        return node
    kept = {
        key: {name: _bounded(each, items) for name, each in child.items()} if key in _MAPS else _bounded(child, items)
        for key, child in node.items()
        if key != "raw"
    }
    if isinstance(node.get("items"), Mapping):
        kept.setdefault("maxItems", max(items, node.get("minItems", 0), len(node.get("prefixItems", ()))))
    if isinstance(node.get("additionalProperties"), Mapping):
        kept.setdefault("maxProperties", max(items, node.get("minProperties", 0)))
    return kept
