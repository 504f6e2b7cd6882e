"""What is left to the check of the finished value: can the check decide it, surely and in bounded time?

The grammar does not hold these schemas, so nothing may stand in them that the check would skip, fetch, or stall at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_backend.schema.checking import harmless
from heptagram_backend.schema.keywords import LISTS, MAPS, NUMBER, SCHEMAS, assertions, types
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.numbers import natural, numeric
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.pointer import follow
from heptagram_backend.validate import CHECKED_FORMATS

_COUNTS: Final = tuple(
    f"{side}{what}" for side in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
)


class Vet:
    """Reads schemas that the grammar does not hold; a reference's target is read once."""

    def __init__(self, root: Any, budget: Budget) -> None:
        self._root = root
        self._budget = budget
        self._seen: set[tuple[str, ...]] = set()

    def read(self, schema: Any, place: Place, depth: int = 0) -> None:
        """Look through ``schema`` and all in it.

        Raises:
            RequestError: no schema, or one that the check cannot decide.
        """
        self._budget.node(place, depth)
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise place.invalid("a schema must be an object, true or false")
        for key, value in assertions(schema, place).items():
            here = place / key
            if key == "$ref":
                self._follow(value, place, depth)
            elif key in SCHEMAS:
                self.read(value, here, depth + 1)
            elif key in MAPS or key in LISTS:
                self._children(key, value, here, depth)
            else:
                _READERS[key](schema, key, place)

    def _follow(self, reference: Any, place: Place, depth: int) -> None:
        keys, target = follow(self._root, reference, place)
        if keys not in self._seen:
            self._seen.add(keys)
            self.read(target, place.at(keys), depth + 1)

    def _children(self, key: str, value: Any, here: Place, depth: int) -> None:
        if not isinstance(value, dict if key in MAPS else list):
            raise here.invalid("must be an object that maps names to schemas" if key in MAPS else "must be a list")
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "patternProperties":
                require_harmless(name, here / name)
            self.read(child, here / name, depth + 1)


def require_harmless(pattern: Any, here: Place) -> None:
    """Refuse a pattern that only the check would hold, and that could stall it.

    Raises:
        RequestError: it is one, or no pattern at all.
    """
    if not isinstance(pattern, str):
        raise here.invalid("must be a string")
    if not harmless(pattern):
        raise here.refuse("the check of the finished value could stall at this pattern; write one with few repetitions")


def _format(schema: Mapping[str, Any], key: str, place: Place) -> None:
    if not isinstance(schema[key], str):
        raise (place / key).invalid("must be a string")
    speaks = "type" not in schema or "string" in types(schema, place)
    if speaks and schema[key] not in CHECKED_FORMATS:
        raise (place / key).refuse(f"format {schema[key][:40]!r} cannot be checked; leave it out")


def _pattern(schema: Mapping[str, Any], key: str, place: Place) -> None:
    require_harmless(schema[key], place / key)


def _listed(schema: Mapping[str, Any], key: str, place: Place) -> None:
    if not isinstance(schema[key], list):
        raise (place / key).invalid("must be a list of values")


def _names(schema: Mapping[str, Any], key: str, place: Place) -> None:
    names_of(schema[key], place / key)


def names_of(value: Any, here: Place) -> list[str]:
    """A list of property names, each once.

    Raises:
        RequestError: it is none.
    """
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise here.invalid("must be a list of property names, beside `properties`")
    return list(dict.fromkeys(value))


def dependencies(schema: Mapping[str, Any], key: str, place: Place) -> dict[str, list[str]]:
    """``dependentRequired``: by property the names that it needs.

    Raises:
        RequestError: it is not that.
    """
    here, value = place / key, schema[key]
    if not isinstance(value, dict):
        raise here.invalid("must be an object that maps names to lists of names")
    return {name: names_of(needed, here / name) for name, needed in value.items()}


def _flag(schema: Mapping[str, Any], key: str, place: Place) -> None:
    if not isinstance(schema[key], bool):
        raise (place / key).invalid("must be true or false")


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str, Place], Any]]] = {
    **dict.fromkeys(_COUNTS, natural),
    **dict.fromkeys(NUMBER, numeric),
    "type": lambda schema, _key, place: types(schema, place),
    "enum": _listed,
    "const": lambda _schema, _key, _place: None,
    "required": _names,
    "dependentRequired": dependencies,
    "uniqueItems": _flag,
    "pattern": _pattern,
    "format": _format,
}
