"""``anyOf`` and ``oneOf``: what stands beside one is joined into each of its branches."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from heptagram_backend.schema.conditions import written_at
from heptagram_backend.schema.disjoint import branch, exclusive
from heptagram_backend.schema.nodes import NEVER, Node, Schemas, either
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.typed import typed
from heptagram_wire import errors as codes

_UNIONS: Final = ("anyOf", "oneOf")
_PRODUCT: Final = 16  # of branches of the unions behind the first one: each is joined into all of the others


def union(flat: Mapping[str, Any], place: Place, walk: Schemas, depth: int) -> Node:
    """The enforced form of a schema without ``$ref``; another union beside the first is joined into each branch too."""
    key = "oneOf" if "oneOf" in flat else "anyOf"
    if key not in flat:
        return _rejoined(flat, place, walk, depth)
    rest = {name: value for name, value in flat.items() if name != key}
    branches = branches_of(flat, key, place)
    what = f"branches of `{key}`"
    walk.budget.count(place / key, len(branches), walk.budget.limits.branches, what, codes.TOO_MANY_BRANCHES)
    places = [written_at(item, place / key / index) for index, item in enumerate(branches)]
    opened: list[dict[str, Any] | None] = []
    if rest or key == "oneOf":
        for item, where in zip(branches, places, strict=True):
            alone = walk.opened(item, where, depth + 1)
            if rest and alone is not None:
                alone = walk.without_unevaluated(alone, where)
            opened.append(None if alone is None else walk.merged(rest, alone, where))
    if key == "oneOf":
        _require_exclusive(flat[key], [item for item in opened if item is not None], place / key, walk)
    if not rest:
        nodes = [walk.node(item, where, depth + 1) for item, where in zip(branches, places, strict=True)]
    else:
        nodes = [
            NEVER if merged is None else union(merged, where, walk, depth + 1)
            for merged, where in zip(opened, places, strict=True)
        ]
    return either(nodes)


def _rejoined(flat: Mapping[str, Any], place: Place, walk: Schemas, depth: int) -> Node:
    """No union is left but those that could not be joined before; take up the next one."""
    waiting = list(flat.get("allOf", ()))
    alone = {key: value for key, value in flat.items() if key != "allOf"}
    unions = [part for part in waiting if not part.keys().isdisjoint(_UNIONS)]
    product = 1
    for part in unions:
        product *= max(len(branches_of(part, key, place)) for key in _UNIONS if key in part)
        if product > _PRODUCT:
            message = "so many unions or conditions that all hold cannot be enforced; write fewer"
            walk.leave(place / next(iter(part)), message, part)
            waiting.remove(part)
    if unions:
        waiting.remove(unions[0])
        rest = {"allOf": waiting} if waiting else {}
        return union({**alone, **unions[0], **rest}, place, walk, depth + 1)
    for part in waiting:
        key = next(iter(part))
        walk.leave(place / key, f"two `{key}` that both hold cannot be enforced; write one", part)
    return typed(alone, place, walk, depth)


def _require_exclusive(written: list[Any], branches: list[dict[str, Any]], place: Place, walk: Schemas) -> None:
    def resolve(schema: Any) -> Mapping[str, Any]:
        if isinstance(schema, dict) and {"$ref", "allOf"}.isdisjoint(schema):
            return schema
        return walk.opened(schema, place, 0) or {}

    read = [branch(item, resolve) for item in branches]
    if not all(exclusive(left, right) for left, right in combinations(read, 2)):
        message = (
            "two branches may hold at once, which `oneOf` forbids; write `anyOf`, or give each branch a "
            "required property with its own `const`"
        )
        walk.leave(place, message, {"oneOf": written})


def branches_of(schema: Mapping[str, Any], key: str, place: Place) -> list[Any]:
    """The schemas that a union or an ``allOf`` lists.

    Raises:
        RequestError: it lists none.
    """
    branches = schema[key]
    if not isinstance(branches, list) or not branches:
        raise (place / key).invalid("must be a list of at least one schema")
    return branches
