"""Schema families of DSML parameters, each with a strategy for its valid values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.formats.schemas import FAMILIES as SHARED
from tests.formats.schemas import SMALL, TEXT, Family, closed, in_order

# Raw text without the marker; with a length the bar is left out, which the format's documentation says.
RAW = st.text(st.sampled_from('｜DSML</> \n"\\{}é漢😀\x00\r'), max_size=12).filter(lambda text: "｜DSML｜" not in text)
NO_BAR = st.text(st.sampled_from('DSML</> \n"\\é漢😀'), min_size=2, max_size=9)
NAMES = ("a", "b", "c", "d", "e", "f")


def _wrapped(name: str) -> Family:
    """Only parameters that are declared can be enforced: a free object stands one level deeper."""
    inner = SHARED[name]
    return Family(closed({"o": dict(inner.schema)}, ["o"]), st.fixed_dictionaries({"o": inner.values}), inner.escapes)


def _family(fields: dict[str, tuple[Any, st.SearchStrategy[Any]]], required: list[str]) -> Family:
    schema = closed({name: field[0] for name, field in fields.items()}, required)
    return Family(schema, in_order({name: field[1] for name, field in fields.items()}, required))


FAMILIES: dict[str, Family] = {
    **{name: SHARED[name] for name in ("nothing", "scalars", "nested", "bounded text", "unions", "recursive")},
    "a map": _wrapped("a map"),
    "anything": _wrapped("anything"),
    "raw text": _family({"s": ({"type": "string"}, RAW), "any": ({}, RAW | SMALL | st.booleans() | st.none())}, ["s"]),
    "lengths": _family(
        {
            "most": ({"type": "string", "maxLength": 12}, RAW),
            "one": ({"type": "string", "minLength": 1, "maxLength": 12}, RAW.filter(bool)),
            "least": ({"type": "string", "minLength": 2}, NO_BAR),
        },
        ["one", "least"],
    ),
    "patterns": _family(
        {
            "loose": ({"type": "string", "pattern": "b"}, NO_BAR.map(lambda text: f"{text}b")),
            "quotes": ({"type": "string", "pattern": '^["<>\\\\]+$'}, st.text('"<>\\', min_size=1, max_size=5)),
            "id": ({"type": "string", "format": "uuid"}, st.uuids().map(str)),
        },
        ["loose", "quotes", "id"],
    ),
    "many optional ones": _family({name: ({"type": "integer"}, SMALL) for name in NAMES}, []),
    "enums": _family({"e": ({"enum": ["a", "</", 1, None, "1"]}, st.sampled_from(["a", "</", 1, None, "1"]))}, ["e"]),
    "markup inside JSON": _family(
        {
            "list": (
                {"type": "array", "items": {"type": "string"}},
                st.lists(
                    TEXT | st.just('</｜DSML｜parameter>\n<｜DSML｜parameter name="x" string="true">'), max_size=3
                ),
            )
        },
        ["list"],
    ),
}
