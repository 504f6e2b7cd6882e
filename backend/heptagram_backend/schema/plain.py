"""Is it JSON that the walk can go through? Asked first, without recursion."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes

_LEVELS: Final = 128  # of nested JSON, the most that a release may allow a request


def require_plain(schema: Any, place: Place) -> None:
    """Refuse what is nested beyond any use, and numbers that JSON cannot write.

    Raises:
        RequestError: it is one of these, with the place.
    """
    pending: list[tuple[Any, tuple[str, ...]]] = [(schema, place.keys)]
    while pending:
        value, keys = pending.pop()
        if len(keys) > _LEVELS:
            message = f"nested deeper than {_LEVELS} levels; flatten it"
            raise place.at(keys).refuse(message, code=codes.SCHEMA_TOO_DEEP)
        if isinstance(value, float) and not isfinite(value):
            raise place.at(keys).invalid(f"{value} is no JSON number; write a finite one")
        if isinstance(value, dict):
            pending += [(child, (*keys, str(key))) for key, child in value.items()]
        elif isinstance(value, list):
            pending += [(child, (*keys, str(index))) for index, child in enumerate(value)]
