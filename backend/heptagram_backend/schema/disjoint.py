"""``oneOf`` is enforced as ``anyOf`` where no generated value can satisfy two branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heptagram_backend.schema.keywords import TYPES, identity, type_of

Resolve = Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Branch:
    """What tells a branch apart, read off once.

    ``values`` are the listed ones, ``tags`` the listed values of required properties. ``declared`` holds the names
    that a generated object can have; it is ``None`` where that is not known.
    """

    types: frozenset[str]
    values: frozenset[str] | None
    required: frozenset[str] = frozenset()
    declared: frozenset[str] | None = None
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)


def branch(schema: Mapping[str, Any], resolve: Resolve) -> Branch:
    """Read a branch. ``resolve`` follows the references of a property's schema."""
    types, values = _types(schema), _values(schema)
    if not {"anyOf", "oneOf", "allOf", "$ref"}.isdisjoint(schema):
        return Branch(types, values)
    names, properties = schema.get("required"), schema.get("properties")
    required = frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()
    found: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
    tags: dict[str, frozenset[str]] = {}
    for key in required & found.keys():
        listed = _values(resolve(found[key]))
        if listed is not None:
            tags[key] = listed
    declared = required | found.keys()
    closed = declared or schema.get("additionalProperties") is False
    return Branch(types, values, required, declared if closed else None, tags)


def exclusive(left: Branch, right: Branch) -> bool:
    """Is it certain that what is generated for one branch is not valid for the other, both ways?

    Objects are generated with declared properties only, so a branch that requires a property which the other does not
    declare excludes the other's values.
    """
    shared = left.types & right.types
    if not shared:
        return True
    if left.values is not None and right.values is not None:
        return left.values.isdisjoint(right.values)
    if shared != {"object"}:
        return False
    tagged = any(left.tags[key].isdisjoint(right.tags[key]) for key in left.tags.keys() & right.tags.keys())
    return tagged or (_lacks(left, right) and _lacks(right, left))


def _lacks(generated: Branch, other: Branch) -> bool:
    """``other`` requires a property that no object generated for ``generated`` has."""
    return generated.declared is not None and not other.required <= generated.declared


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    """``number`` stands for whole numbers too."""
    declared = schema.get("type", list(TYPES))
    names = {name for name in (declared if isinstance(declared, list) else [declared]) if isinstance(name, str)}
    if "number" in names:
        names.add("integer")
    listed = _listed(schema)
    return frozenset(names if listed is None else names & {type_of(value) for value in listed})


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    listed = _listed(schema)
    return None if listed is None else frozenset(map(identity, listed))


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None
