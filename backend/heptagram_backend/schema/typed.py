"""Schemas of listed values, or of one or more types: each type has its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_backend.schema import containers, numbers
from heptagram_backend.schema.enums import enumerated
from heptagram_backend.schema.keywords import TYPES, type_of, types
from heptagram_backend.schema.nodes import Node, Nodes, either
from heptagram_backend.schema.numbers import natural
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.strings import string

_Reader = Callable[[Mapping[str, Any], Place, Nodes, int], Node | None]


def typed(flat: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node:
    """The enforced form of a schema that combines no others; of ``not``, it holds listed values only."""
    if "enum" in flat or "const" in flat:
        values = enumerated(flat, place, walk)
        return values or walk.never(place, "none of the values fits the other keywords")
    names = types(flat, place)
    if "not" not in flat:
        return either([_of_type(name, flat, place, walk, depth) for name in names]) if names else {}
    names = names or tuple(name for name in TYPES if name != "integer")
    return either([_without_listed(name, flat, place, walk, depth) for name in names])


def _without_listed(name: str, flat: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node:
    """One type, without the values that ``not`` lists."""
    rest = {key: value for key, value in flat.items() if key != "not"}
    kinds = (name, "integer") if name == "number" else (name,)
    listed = [value for value in flat["not"]["enum"] if type_of(value) in kinds]
    if listed and name in ("boolean", "null"):
        return typed({"enum": [None] if name == "null" else [False, True], **flat}, place, walk, depth)
    if listed == [""]:
        rest["minLength"] = max(1, natural(flat, "minLength", place) or 0)
    elif listed:
        message = f"`not` of a {name} among many cannot be enforced; list what is allowed instead"
        walk.leave(place / "not", message, {"not": {"enum": listed}})
    return _of_type(name, rest, place, walk, depth)


def _of_type(name: str, flat: Mapping[str, Any], place: Place, walk: Nodes, depth: int) -> Node:
    found = _READERS[name](flat, place, walk, depth)
    return walk.never(place, f"no {name} satisfies the keywords") if found is None else found


_READERS: Final[Mapping[str, _Reader]] = {
    "object": containers.object_,
    "array": containers.array,
    "string": lambda flat, place, walk, _depth: string(flat, place, walk),
    "integer": lambda flat, place, _walk, _depth: numbers.integer(flat, place),
    "number": lambda flat, place, _walk, _depth: numbers.number(flat, place),
    "boolean": lambda *_: {"type": "boolean"},
    "null": lambda *_: {"type": "null"},
}
