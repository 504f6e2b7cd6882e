"""The nodes of a structural tag that all formats are made of. See :mod:`heptagram_backend.lowering` for our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heptagram_backend.constraint import ConstraintSpec

Node = dict[str, Any]


def const(text: str) -> Node:
    return {"type": "const_string", "value": text}


def sequence(elements: Sequence[Node]) -> Node:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def either(elements: Sequence[Node]) -> Node:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def optional(content: Node) -> Node:
    return {"type": "optional", "content": content}


def shared(content: Node) -> Node:
    """Written once, however often it stands in the constraint."""
    return {"type": "shared", "content": content}


def tag(begin: str, content: Node, end: str) -> Node:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def several(tags: Sequence[Node], separator: str, *, parallel: bool = True) -> Node:
    """One of ``tags`` or, when ``parallel``, more of them."""
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }


def text_without(*markers: str) -> Node:
    """Text of any length that none of ``markers`` stands in."""
    return {"type": "any_text", "excludes": list(markers)}


def tag_spec(node: Node) -> ConstraintSpec:
    """The whole answer is ``node``."""
    return ConstraintSpec.structural_tag({"type": "structural_tag", "format": node})
