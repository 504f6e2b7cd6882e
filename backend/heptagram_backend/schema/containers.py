"""Objects and arrays.

An object is written closed: a property that is not declared is never generated, which is sound whatever
``additionalProperties`` says, and needed, because XGrammar would let a declared key come back as an additional one
with another type. Only an object without declared properties is written as a map. Its keys may repeat in the
generated text; the last one counts, so a minimum of two keys cannot be promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.numbers import natural
from heptagram_backend.schema.place import Place

Node = dict[str, Any]
_COUNTED_PROPERTIES: Final = 64  # minProperties and maxProperties compile in quadratic time


class Nodes(Protocol):
    """What walks the subschemas."""

    budget: Budget

    def node(self, schema: Any, place: Place, depth: int) -> Node: ...


def object_(schema: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node | None:
    """The enforced form of an object's keywords; ``None`` when no object satisfies them."""
    _refuse_unenforced(schema, place)
    declared = _map(schema, "properties", place)
    required = _names(schema, place)
    others, others_place = _others(schema, place)
    least, most = natural(schema, "minProperties", place) or 0, natural(schema, "maxProperties", place)
    walk.budget.count(place, len(declared) + len(required), walk.budget.limits.properties * 2, "properties")
    properties: dict[str, Node] = {}
    for name, child in declared.items():
        properties[name] = walk.node(child, place / "properties" / name, depth + 1)
    for name in required:
        if name not in properties:
            properties[name] = walk.node(others, others_place, depth + 1)
    walk.budget.count(place, len(properties), walk.budget.limits.properties, "properties of one object")
    if properties or others is False or ("properties" in schema and "additionalProperties" not in schema):
        closed: Node = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        bounds = _count_keywords("Properties", least, most, natural_least=len(required), top=len(properties))
        if bounds:
            walk.budget.count(place, len(properties), _COUNTED_PROPERTIES, "properties beside a count of them")
        return closed | bounds
    if least > 1:
        raise (place / "minProperties").refuse("more than 1 cannot be enforced for free keys; declare the properties")
    node: Node = {"type": "object", "additionalProperties": walk.node(others, others_place, depth + 1)}
    return node | _count_keywords("Properties", least, most, natural_least=0, top=None)


def array(schema: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node | None:
    """The enforced form of an array's keywords; ``None`` when no array satisfies them."""
    least, most = natural(schema, "minItems", place) or 0, natural(schema, "maxItems", place)
    walk.budget.count(place / "minItems", least, walk.budget.limits.items, "items at least")
    if most is not None:
        most = max(least, min(most, walk.budget.limits.items)) if least <= most else most
    prefix = schema.get("prefixItems", [])
    if not isinstance(prefix, list):
        raise (place / "prefixItems").invalid("must be a list of schemas")
    items = schema.get("items", True)
    if isinstance(items, list):
        raise (place / "items").invalid("a list of schemas is written `prefixItems` since draft 2020-12")
    if schema.get("unevaluatedItems", True) is not True and "items" not in schema:
        items = False
    if "items" not in schema and prefix and least <= len(prefix):
        items = False  # more would be allowed, but nothing says what
    if schema.get("uniqueItems", False) is not False and (most is None or most > 1):
        raise (place / "uniqueItems").refuse("cannot be enforced; leave it out and check the result")
    heads = [walk.node(head, place / "prefixItems" / index, depth + 1) for index, head in enumerate(prefix)]
    node: Node = {"type": "array"}
    if heads:
        node["prefixItems"] = heads
    node["items"] = walk.node(items, place / "items", depth + 1) if items is not False else False
    return node | _count_keywords("Items", least, most, natural_least=0, top=None)


def _count_keywords(what: str, least: int, most: int | None, *, natural_least: int, top: int | None) -> Node:
    """``min`` and ``max`` keywords where they bind."""
    bounds: Node = {}
    if least > natural_least:
        bounds[f"min{what}"] = least
    if most is not None and (top is None or most < top):
        bounds[f"max{what}"] = most
    return bounds


def _refuse_unenforced(schema: Mapping[str, Any], place: Place) -> None:
    if _map(schema, "patternProperties", place):
        raise (place / "patternProperties").refuse(
            "cannot be enforced; declare the properties, or write `additionalProperties` for a map"
        )
    names = schema.get("propertyNames", True)
    if names is not True and names not in ({}, {"type": "string"}):
        raise (place / "propertyNames").refuse("cannot be enforced; leave it out, or declare the properties")


def _others(schema: Mapping[str, Any], place: Place) -> tuple[Any, Place]:
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


def _names(schema: Mapping[str, Any], place: Place) -> list[str]:
    value = schema.get("required", [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise (place / "required").invalid("must be a list of property names, beside `properties`")
    return list(dict.fromkeys(value))
