"""``$ref``: local JSON Pointers only. Nothing is ever fetched."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from heptagram_backend.schema.keywords import LISTS, MAPS, SCHEMAS
from heptagram_backend.schema.place import Place

_MAPS = MAPS | {"$defs", "definitions"}


def follow(root: Any, reference: Any, place: Place) -> tuple[tuple[str, ...], Any]:
    """The keys of the schema that ``reference`` points to, and the schema itself.

    Raises:
        RequestError: not a local pointer, or nothing there that is a schema.
    """
    here = place / "$ref"
    if not isinstance(reference, str):
        raise here.invalid("must be a string")
    if reference != "#" and not reference.startswith("#/"):
        raise here.refuse(
            f"{reference[:80]!r} is not inside this schema and nothing is fetched; copy it into `$defs` and write "
            "#/$defs/NAME"
        )
    keys = tuple(
        unquote(token).replace("~1", "/").replace("~0", "~") for token in reference.removeprefix("#").split("/")[1:]
    )
    target: Any = root
    expects = "schema"  # what `target` is: a schema, a map of names to schemas, or a list of schemas
    for key in keys:
        if expects == "schema" and isinstance(target, dict) and key in target:
            expects = "map" if key in _MAPS else "list" if key in LISTS else "schema" if key in SCHEMAS else ""
            target = target[key]
        elif expects == "map" and isinstance(target, dict) and key in target:
            expects, target = "schema", target[key]
        elif expects == "list" and isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            expects, target = "schema", target[int(key)]
        else:
            expects = ""
        if not expects:
            break
    if expects != "schema" or not isinstance(target, dict | bool):
        raise here.refuse(f"{reference[:80]!r} points to no schema; declare it in `$defs`")
    return keys, target
