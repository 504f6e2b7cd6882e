"""References that lead back to themselves without reading any of the value: no check of such a schema ever ends.

Looked for in the schema as it was written, because the check of finished values reads that, dead branches too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from heptagram_backend.errors import RequestError
from heptagram_backend.schema.keywords import MAPS
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.pointer import follow

_LISTS: Final = ("anyOf", "oneOf", "allOf")
_SCHEMAS: Final = ("not", "if", "then", "else")
_DATA: Final = frozenset(("enum", "const", "default", "example", "examples"))
_NAMED: Final = MAPS | {"$defs", "definitions"}
Keys = tuple[str, ...]


def endless(root: Any, place: Place, budget: Budget) -> Place | None:
    """The place of a schema that refers to itself at once; ``None`` when there is none.

    References that lead nowhere are none of its business.

    Raises:
        RequestError: the references lead through more schemas than ``budget`` allows.
    """
    search = _Search(root, place, budget)
    for reference in _anywhere(root):
        for first in search.targets([reference]):
            if (loop := search.loop(first)) is not None:
                return place.at(loop)
    return None


class _Search:
    """Depth first, from one target of a reference to those that stand at its very place."""

    def __init__(self, root: Any, place: Place, budget: Budget) -> None:
        self._root = root
        self._place = place
        self._budget = budget
        self._finished: set[Keys] = set()

    def loop(self, first: Keys) -> Keys | None:
        if first in self._finished:
            return None
        trail, pending = {first: None}, [self._next(first)]
        while pending:
            keys = next(pending[-1], None)
            if keys is None:
                pending.pop()
                self._finished.add(trail.popitem()[0])
            elif keys in trail:
                return keys
            elif keys not in self._finished:
                trail[keys] = None
                pending.append(self._next(keys))
        return None

    def targets(self, references: Iterable[Any]) -> Iterator[Keys]:
        for reference in references:
            with suppress(RequestError):
                yield follow(self._root, reference, self._place)[0]

    def _next(self, keys: Keys) -> Iterator[Keys]:
        schema = self._root
        for key in keys:
            schema = schema[int(key)] if isinstance(schema, list) else schema[key]
        return self.targets(self._at_once(schema))

    def _at_once(self, schema: Any) -> Iterator[Any]:
        """References at the very place of ``schema``."""
        self._budget.node(self._place, 0)
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            yield schema["$ref"]
        inner: list[Any] = [schema[key] for key in _SCHEMAS if key in schema]
        for key in _LISTS:
            inner += schema[key] if isinstance(schema.get(key), list) else []
        cases = schema.get("dependentSchemas")
        inner += cases.values() if isinstance(cases, dict) else []
        for child in inner:
            yield from self._at_once(child)


def _anywhere(schema: Any) -> Iterator[str]:
    """All references of a schema, those in its definitions too."""
    if isinstance(schema, list):
        for child in schema:
            yield from _anywhere(child)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for key, child in schema.items():
        if key in _NAMED and isinstance(child, dict):
            yield from _anywhere(list(child.values()))
        elif key not in _DATA:
            yield from _anywhere(child)
