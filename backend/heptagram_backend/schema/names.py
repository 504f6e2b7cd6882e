"""Which names the properties of an object may have: declared ones, or free ones of one pattern.

``patternProperties`` and ``propertyNames`` are exact for declared names, because a pattern is looked for in each of
them. Free names are held to one pattern; where several patterns or other keywords would be needed, they are left to the
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from heptagram_backend.schema.listed import admits, found
from heptagram_backend.schema.nodes import Node, Nodes
from heptagram_backend.schema.place import Place

Child = tuple[Any, Place]


@dataclass(frozen=True, slots=True)
class Names:
    """``declared`` has the schema of each name that may be generated, ``others`` that of free names; ``keys`` is a
    pattern of free names over JSON text. A ``closed`` object has declared names only."""

    declared: dict[str, Child]
    others: Child
    closed: bool
    keys: str | None = None


def read_names(schema: Mapping[str, Any], required: list[str], place: Place, walk: Nodes, depth: int) -> Names:
    """Read ``properties`` with all that speaks about names; ``required`` ones are declared too.

    Raises:
        RequestError: a keyword cannot be enforced.
    """
    properties, patterns = _map(schema, "properties", place), _map(schema, "patternProperties", place)
    others = _others(schema, place)
    declared = {name: (child, place / "properties" / name) for name, child in properties.items()}
    closed = bool(declared or required) or others[0] is False
    closed |= "properties" in schema and "additionalProperties" not in schema
    names = Names({**declared, **{name: others for name in required if name not in declared}}, others, closed)
    if patterns:
        names = _patterned(names, properties, patterns, place, walk)
    if schema.get("propertyNames", True) not in (True, {}):
        names = _named(names, schema["propertyNames"], place / "propertyNames", walk, depth)
    return names


def _patterned(
    names: Names, properties: Mapping[str, Any], patterns: Mapping[str, Any], place: Place, walk: Nodes
) -> Names:
    here = place / "patternProperties"
    matching = {name: [found(pattern, name, here, walk.budget) for pattern in patterns] for name in names.declared}
    free = not names.declared
    if any(None in matches for matches in matching.values()) or (free and len(patterns) > 1):
        message = "cannot be enforced here; declare the properties, or write `additionalProperties` for a map"
        walk.leave(here, message, {"patternProperties": dict(patterns)})
        return replace(names, others=(True, names.others[1]), closed=not free)
    if free:
        [(pattern, child)] = patterns.items()
        keys = walk.node({"type": "string", "pattern": pattern}, here, 0)
        return Names({}, (child, here / pattern), closed=False, keys=keys["pattern"])
    declared = {}
    for name, (child, where) in names.declared.items():
        met = [schema for schema, hit in zip(patterns.values(), matching[name], strict=True) if hit]
        own = [child] if name in properties or not met else []
        declared[name] = ({"allOf": [*own, *met]} if met else child, where)
    return replace(names, declared=declared)


def _named(names: Names, schema: Any, here: Place, walk: Nodes, depth: int) -> Names:
    """Drop the declared names that ``propertyNames`` does not admit; hold the free ones to it."""
    node = walk.node({"allOf": [{"type": "string"}, schema]}, here, depth + 1)
    if node == {"type": "string"}:
        return names
    admitted = [_admits(node, name, here, walk) for name in names.declared]
    listed = [node["const"]] if "const" in node else node.get("enum")
    if None in admitted or (not names.closed and (names.keys or (listed is None and "pattern" not in node))):
        message = "cannot be enforced here; leave it out, or declare the properties"
        walk.leave(here, message, {"propertyNames": schema})
        return names
    if names.closed:
        declared = {
            name: child if fits else (False, here)
            for (name, child), fits in zip(names.declared.items(), admitted, strict=True)
        }
        return replace(names, declared=declared)
    if listed is not None:
        return Names(dict.fromkeys(listed, names.others), names.others, closed=True)
    return replace(names, keys=node["pattern"])


def _admits(node: Node, name: str, here: Place, walk: Nodes) -> bool | None:
    """Does a walked schema of strings admit ``name``? ``None``: not decided."""
    if "const" in node or "enum" in node:
        return name in node.get("enum", [node.get("const")])
    if "raw" not in node:
        return None
    verdicts = [admits(node["raw"], key, name, here, walk.budget) for key in node["raw"]]
    return False if False in verdicts else None if None in verdicts else True


def _others(schema: Mapping[str, Any], place: Place) -> Child:
    """The schema of keys that are not declared."""
    if "additionalProperties" in schema:
        return schema["additionalProperties"], place / "additionalProperties"
    closed = schema.get("unevaluatedProperties", True) is not True
    return not closed, place / "unevaluatedProperties" if closed else place / "additionalProperties"


def _map(schema: Mapping[str, Any], key: str, place: Place) -> Mapping[str, Any]:
    value = schema.get(key, {})
    if not isinstance(value, dict):
        raise (place / key).invalid("must be an object that maps names to schemas")
    return value
