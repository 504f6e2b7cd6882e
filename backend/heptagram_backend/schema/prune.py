"""Takes out what no finite value satisfies, so that generation never enters a place that it cannot leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Node = dict[str, Any]
_NEVER: Final[Node] = {"enum": []}
_PREFIX: Final = "#/$defs/"


def prune(root: Node, definitions: Mapping[str, Node]) -> tuple[Node, dict[str, Node]] | None:
    """The schema without dead branches, and the definitions that are still used; ``None`` when nothing is left."""
    finite: set[str] = set()
    while True:
        found = {name for name, node in definitions.items() if _cut(node, finite) != _NEVER}
        if found == finite:
            break
        finite = found
    pruned = _cut(root, finite)
    if pruned == _NEVER:
        return None
    kept: dict[str, Node] = {}
    waiting = list(_references(pruned))
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = _cut(definitions[name], finite)
            waiting.extend(_references(kept[name]))
    return pruned, {name: kept[name] for name in definitions if name in kept}


def _at_once(node: Node) -> Iterator[str]:
    """References that stand at the very place of ``node``."""
    if "$ref" in node:
        yield node["$ref"].removeprefix(_PREFIX)
    for branch in node.get("anyOf", ()):
        yield from _at_once(branch)


def _references(node: Node) -> Iterator[str]:
    yield from _at_once(node)
    for branch in node.get("anyOf", ()):
        if "$ref" not in branch:
            yield from _references(branch)
    if node.get("type") in ("object", "array"):
        children = [*node.get("properties", {}).values(), *node.get("prefixItems", ())]
        children += [node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
        for child in children:
            yield from _references(child)


def _cut(node: Node, finite: set[str]) -> Node:
    if "$ref" in node:
        return node if node["$ref"].removeprefix(_PREFIX) in finite else _NEVER
    if "anyOf" in node:
        branches = [branch for item in node["anyOf"] if (branch := _cut(item, finite)) != _NEVER]
        return {"anyOf": branches} if len(branches) > 1 else branches[0] if branches else _NEVER
    if node.get("type") == "object":
        return _cut_object(node, finite)
    return _cut_array(node, finite) if node.get("type") == "array" else node


def _cut_object(node: Node, finite: set[str]) -> Node:
    least, most = node.get("minProperties", 0), node.get("maxProperties")
    if most is not None and least > most:
        return _NEVER
    if "properties" not in node:
        others = _cut(node["additionalProperties"], finite)
        if others != _NEVER and most != 0:
            return node | {"additionalProperties": others}
        node = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        return _NEVER if least else node
    properties = {name: _cut(child, finite) for name, child in node["properties"].items()}
    if any(properties[name] == _NEVER for name in node["required"]):
        return _NEVER
    properties = {name: child for name, child in properties.items() if child != _NEVER}
    if least > len(properties) or (most is not None and most < len(node["required"])):
        return _NEVER
    return node | {"properties": properties}


def _cut_array(node: Node, finite: set[str]) -> Node:
    least, most = node.get("minItems", 0), node.get("maxItems")
    heads = [_cut(head, finite) for head in node.get("prefixItems", ())]
    dead = next((index for index, head in enumerate(heads) if head == _NEVER), len(heads))
    items = _NEVER if node["items"] is False or dead < len(heads) else _cut(node["items"], finite)
    heads = heads[:dead] if most is None else heads[: min(dead, most)]
    if items == _NEVER:
        most = len(heads) if most is None else min(most, len(heads))
    if most is not None and least > most:
        return _NEVER
    kept: Node = {"type": "array"}
    if heads:
        kept["prefixItems"] = heads
    if most is not None and most <= len(heads):
        if not heads:
            return {"type": "array", "items": {}, "maxItems": 0}
        return kept | {"items": False} | ({"minItems": least} if least else {})
    kept["items"] = items
    return kept | ({"minItems": least} if least else {}) | ({} if most is None else {"maxItems": most})
