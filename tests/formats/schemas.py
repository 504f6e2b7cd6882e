"""Schema families that the format's grammar must hold, each with a strategy for its valid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from hypothesis import strategies as st

# What a JSON string may hold. Control characters are written as escapes, which the grammar allows too.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SMALL = st.integers(-(10**9), 10**9)


@dataclass(frozen=True, slots=True)
class Family:
    """``values`` are dictionaries in declared order, all valid.

    Subtle: XGrammar takes an enum, and a string with a length or a pattern, only as it is written without escapes.
    ``escapes`` tells whether the values may be written with them.
    """

    schema: Mapping[str, Any]
    values: st.SearchStrategy[dict[str, Any]]
    escapes: bool = True


def closed(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def in_order(fields: Mapping[str, st.SearchStrategy[Any]], required: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Dictionaries with the declared order, where what is not required may be missing."""
    missing = object()
    drawn = {name: value if name in required else st.just(missing) | value for name, value in fields.items()}
    return st.fixed_dictionaries(drawn).map(
        lambda value: {name: value[name] for name in fields if value[name] is not missing}
    )


_NODE = closed({"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}}, ["v"])
_ANY = st.recursive(
    st.none() | st.booleans() | SMALL | TEXT, lambda v: st.lists(v) | st.dictionaries(TEXT, v), max_leaves=5
)

FAMILIES: dict[str, Family] = {
    "nothing": Family(closed({}, []), st.just({})),
    "scalars": Family(
        closed(
            {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "maximum": 30},
                "unit": {"enum": ["°C", "F", None, 7]},
                "exact": {"type": "boolean"},
                "factor": {"type": "number"},
            },
            ["city", "unit"],
        ),
        in_order(
            {
                "city": TEXT,
                "days": st.integers(1, 30),
                "unit": st.sampled_from(["°C", "F", None, 7]),
                "exact": st.booleans(),
                "factor": st.floats(-1e9, 1e9),
            },
            ["city", "unit"],
        ),
        escapes=False,
    ),
    "its own markup": Family(
        closed(
            {"name": {"type": "string"}, "arguments": {"type": "array", "items": {"type": "string"}}}, ["arguments"]
        ),
        in_order(
            {"name": st.just("</tool_call>") | TEXT, "arguments": st.lists(st.just("<tool_call>") | TEXT, max_size=3)},
            ["arguments"],
        ),
    ),
    "nested": Family(
        closed(
            {
                "rows": {
                    "type": "array",
                    "items": closed({"id": {"type": "integer"}, "t": {"type": "string"}}, ["id"]),
                    "minItems": 1,
                    "maxItems": 3,
                }
            },
            ["rows"],
        ),
        in_order({"rows": st.lists(in_order({"id": SMALL, "t": TEXT}, ["id"]), min_size=1, max_size=3)}, ["rows"]),
    ),
    "bounded text": Family(
        closed(
            {
                "code": {"type": "string", "minLength": 2, "maxLength": 5},
                "id": {"type": "string", "pattern": "^[a-z]{1,4}-[0-9]+$"},
                "day": {"type": "string", "format": "date"},
            },
            ["code", "id", "day"],
        ),
        in_order(
            {
                "code": st.text("abé漢😀 </>", min_size=2, max_size=5),
                "id": st.from_regex(r"\A[a-z]{1,4}-[0-9]{1,6}\Z"),
                "day": st.dates(date(1000, 1, 1)).map(lambda day: day.isoformat()),
            },
            ["code", "id", "day"],
        ),
        escapes=False,
    ),
    "unions": Family(
        closed({"who": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}}, []),
        in_order({"who": TEXT | st.none() | SMALL}, []),
    ),
    "recursive": Family(
        {**closed({"head": {"$ref": "#/$defs/node"}}, ["head"]), "$defs": {"node": _NODE}},
        st.recursive(
            st.booleans().map(lambda v: {"v": v}),
            lambda rest: st.tuples(st.booleans(), rest).map(lambda pair: {"v": pair[0], "next": pair[1]}),
        ).map(lambda node: {"head": node}),
    ),
    "a map": Family(
        {"type": "object", "additionalProperties": {"type": "integer"}}, st.dictionaries(TEXT, SMALL, max_size=3)
    ),
    "anything": Family({"type": "object"}, st.dictionaries(TEXT, _ANY, max_size=3)),
}
