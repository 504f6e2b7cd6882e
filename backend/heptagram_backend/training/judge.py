"""Whether calls are those that were wanted, by BFCL's rules: its accepted values, its leniency about strings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from heptagram_backend.training.bfcl import Accepted
from heptagram_backend.training.example import Call

_IGNORED: Final = re.compile(r"[ ,./\-_*^]")


def are_accepted(calls: Sequence[Call], wanted: Sequence[tuple[str, Accepted]]) -> bool:
    """As many calls as wanted, in any order, each with its name and with accepted values only.

    >>> are_accepted([Call("f", {"city": "new york"})], [("f", {"city": ["New York."], "unit": ["c", ""]})])
    True
    """
    left = list(wanted)
    for call in calls:
        fitting = next((place for place, each in enumerate(left) if _fits(call, *each)), None)
        if fitting is None:
            return False
        del left[fitting]
    return not left


def _fits(call: Call, name: str, accepted: Accepted) -> bool:
    return call.name == name and _object_fits(call.arguments, accepted)


def _object_fits(found: Mapping[str, Any], accepted: Accepted) -> bool:
    if any(name not in accepted for name in found):
        return False
    return all(
        any(_same(found[name], value) for value in values) if name in found else "" in values
        for name, values in accepted.items()
    )


def _same(found: Any, value: Any) -> bool:
    if isinstance(found, str) and isinstance(value, str):
        return _plain(found) == _plain(value)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, list) and isinstance(value, list):
        return len(found) == len(value) and all(map(_same, found, value))
    if isinstance(found, dict) and isinstance(value, dict):
        return _object_fits(found, {name: each if isinstance(each, list) else [each] for name, each in value.items()})
    return bool(found == value)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
