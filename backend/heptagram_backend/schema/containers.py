"""Objects and arrays.

An object is written closed: a property that is not declared is never generated, which is sound whatever
``additionalProperties`` says, and needed, because XGrammar would let a declared key come back as an additional one
with another type. Only an object without declared properties is written as a map. Its keys may repeat in the
generated text, and then the check of the finished value refuses it; so a minimum of two keys cannot be promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heptagram_backend.schema.enums import distinct, one_of
from heptagram_backend.schema.names import Names, read_names
from heptagram_backend.schema.nodes import Node, Nodes
from heptagram_backend.schema.numbers import natural
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.vet import names_of
from heptagram_wire import errors as codes


def object_(schema: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node | None:
    """The enforced form of an object's keywords; ``None`` when no object satisfies them."""
    required = names_of(schema.get("required", []), place / "required")
    least, most = natural(schema, "minProperties", place) or 0, natural(schema, "maxProperties", place)
    names = read_names(schema, required, place, walk, depth)
    walk.budget.count(
        place,
        len(names.declared) + len(required),
        walk.budget.limits.properties * 2,
        "properties",
        codes.TOO_MANY_PROPERTIES,
    )
    properties = {name: walk.node(child, where, depth + 1) for name, (child, where) in names.declared.items()}
    walk.budget.count(
        place, len(properties), walk.budget.limits.properties, "properties of one object", codes.TOO_MANY_PROPERTIES
    )
    if names.closed:
        closed: Node = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        bounds = _count_keywords("Properties", least, most, natural_least=len(required), top=len(properties))
        if bounds:
            limit, what = walk.budget.limits.counted_properties, "properties beside a count of them"
            walk.budget.count(place, len(properties), limit, what, codes.TOO_MANY_PROPERTIES)
        return closed | bounds
    if least > 1:
        (place / "minProperties").leave("more than 1 cannot be enforced for free keys; declare the properties")
    return _map(names, walk, depth) | _count_keywords("Properties", least, most, natural_least=0, top=None)


def _map(names: Names, walk: Nodes, depth: int) -> Node:
    child, where = names.others
    keys = {} if names.keys is None else {"propertyNames": {"type": "string", "pattern": names.keys}}
    return {"type": "object", **keys, "additionalProperties": walk.node(child, where, depth + 1)}


def array(schema: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node | None:
    """The enforced form of an array's keywords; ``None`` when no array satisfies them."""
    least, most = natural(schema, "minItems", place) or 0, natural(schema, "maxItems", place)
    walk.budget.count(place / "minItems", least, walk.budget.limits.items, "items at least", codes.REPETITION_TOO_LARGE)
    if most is not None:
        most = max(least, min(most, walk.budget.limits.items)) if least <= most else most
    prefix = schema.get("prefixItems", [])
    if not isinstance(prefix, list):
        raise (place / "prefixItems").invalid("must be a list of schemas")
    items, where = _items(schema, place)
    contains = {key: schema[key] for key in ("contains", "minContains", "maxContains") if key in schema}
    if "contains" in contains:
        walk.leave(place / "contains", "`contains` cannot be enforced; leave it out and check the result", contains)
    heads = [walk.node(head, place / "prefixItems" / index, depth + 1) for index, head in enumerate(prefix)]
    node: Node = {"type": "array"}
    if heads:
        node["prefixItems"] = heads
    node["items"] = walk.node(items, where, depth + 1) if items is not False else False
    if schema.get("uniqueItems", False) is not False and (most is None or most > 1):
        arrays = distinct(node["items"], least, most) if not heads and items is not False else None
        if arrays is not None:
            walk.budget.enum(place / "uniqueItems", len(arrays), len(str(arrays)))
            return one_of(arrays)
        message = "cannot be enforced for so many values; leave it out and check the result"
        walk.leave(place / "uniqueItems", message, {"uniqueItems": schema["uniqueItems"]})
    return node | _count_keywords("Items", least, most, natural_least=0, top=None)


def _items(schema: Mapping[str, Any], place: Place) -> tuple[Any, Place]:
    """The schema of items behind ``prefixItems``, and where it stands. That all of them satisfy ``unevaluatedItems`` is
    more than it demands, where other keywords evaluate some."""
    key = "unevaluatedItems" if "unevaluatedItems" in schema and "items" not in schema else "items"
    items = schema.get(key, True)
    if isinstance(items, list):
        raise (place / key).invalid("a list of schemas is written `prefixItems` since draft 2020-12")
    return items, place / key


def _count_keywords(what: str, least: int, most: int | None, *, natural_least: int, top: int | None) -> Node:
    """``min`` and ``max`` keywords where they bind."""
    bounds: Node = {}
    if least > natural_least:
        bounds[f"min{what}"] = least
    if most is not None and (top is None or most < top):
        bounds[f"max{what}"] = most
    return bounds
