"""What a run counts, as tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.table import Cell, table
from heptagram_backend.schema.keywords import ARRAY, NUMBER, OBJECT, STRING
from heptagram_wire.errors import WireError
from tests.differential.subschemas import rewritten

_COMBINING: Final = frozenset(
    ("$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$id", "$recursiveRef", "type", "enum", "const", "allOf")
).union(("anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"))
_KEYWORDS: Final = OBJECT | ARRAY | STRING | NUMBER | _COMBINING
_QUOTED: Final = re.compile(r"`([^`]+)`")
_MEANT: Final = _KEYWORDS | {"$schema", "$defs", "definitions"}
_WAYS: Final = ("as is", "normalised", "refused")

Rows = list[list[Cell]]


@dataclass(slots=True)
class Counts:
    """``walked`` by source and way, ``refused`` by code and keyword, ``judged`` by form, truth and verdict;
    ``narrowed`` by form and reason, ``beside`` by what both libraries said and why; ``faults`` must stay empty."""

    walked: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    judged: Counter[tuple[str, bool, bool | None]] = field(default_factory=Counter)
    narrowed: Counter[tuple[str, str]] = field(default_factory=Counter)
    unwritable: Counter[tuple[str, str]] = field(default_factory=Counter)
    beside: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def text(self) -> str:
        sources = dict.fromkeys(source for source, _ in self.walked)
        walked: Rows = [
            [source, sum(self.walked[source, way] for way in _WAYS), *(self.walked[source, way] for way in _WAYS)]
            for source in sources
        ]
        forms = dict.fromkeys(form for form, _, _ in self.judged)
        judged: Rows = [[form, *(self.judged[form, *case] for case in _CASES.values())] for form in forms]
        return "\n\n".join(
            (
                table(("schemas", "different", *_WAYS), walked),
                table(("refused as", "at", "schemas"), _rows(self.refused)),
                table(("refused by a form or by llguidance", "why", "schemas"), _rows(self.unwritable)),
                table(("instances", *_CASES), judged),
                table(("valid but refused by", "because of", "instances"), _rows(self.narrowed)),
                table(("ours in JSON beside llguidance", "because of", "instances"), _rows(self.beside)),
            )
        )


_CASES: Final[Mapping[str, tuple[bool, bool | None]]] = {
    "valid, accepted": (True, True),
    "valid, refused": (True, False),
    "invalid, refused": (False, False),
    "invalid, accepted": (False, True),
    "cannot be written": (False, None),
}


def _rows(counter: Counter[tuple[str, str]]) -> Rows:
    return [[*key, count] for key, count in sorted(counter.items(), key=lambda item: (item[0][0], -item[1]))]


def keyword_of(error: WireError) -> str:
    """The keyword that a refusal speaks of: the end of its place, or the first one that it names."""
    place, _, message = error.message.partition(": ")
    last = place.rpartition("/")[2]
    named = [word for word in _QUOTED.findall(message) if word in _KEYWORDS]
    return last if last in _KEYWORDS else named[0] if named else message.partition(",")[0].partition(";")[0][:60]


def as_is(schema: Any, enforced: Any) -> bool:
    """Did the walker write what the caller wrote, but for annotations and what is implied?"""
    return bool(_spelled_out(schema) == _spelled_out(enforced))


def _spelled_out(schema: Any) -> Any:
    def change(node: dict[str, Any]) -> dict[str, Any]:
        meant = {key: value for key, value in node.items() if key in _MEANT - {"$schema"}}
        if "properties" in meant:
            meant = {"required": [], "additionalProperties": False, **meant}
        return {"items": {}, **meant} if meant.get("type") == "array" else meant

    return rewritten(schema, change)


def merged(parts: Iterable[Counts]) -> Counts:
    """All of them as one."""
    whole = Counts()
    for part in parts:
        for name in ("walked", "refused", "judged", "narrowed", "unwritable", "beside"):
            getattr(whole, name).update(getattr(part, name))
        whole.faults += part.faults
    return whole
