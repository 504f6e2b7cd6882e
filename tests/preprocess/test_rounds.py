"""Repeated groups: shorter rounds make the same texts, and what would grow costlier with the text is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.schema.formats import FORMATS
from heptagram_backend.schema.listed import _ends
from heptagram_backend.schema.regex import Node, PatternError, parse
from heptagram_backend.schema.render import pattern as rendered
from heptagram_backend.schema.rounds import shortened, with_distinct_rounds

_PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "1", "[ab]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{2,}", "{0}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)

# What people write: emails, names, addresses, versions, paths, lists, quoted text.
_WRITTEN = (
    r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
    r"^[a-z]+(?:-?[a-z0-9]+)*$",
    r"^\w+([.-]?\w+)*@\w+([.-]?\w+)*(\.\w{2,3})+$",
    r"^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])$",
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$",
    r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    r"^#(?:[0-9a-fA-F]{3}){1,2}$",
    r"^(?:\d{1,3}\.){3}\d{1,3}$",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    r"^(/[^/ ]*)+/?$",
    r"^(\d+|\*)(,(\d+|\*))*$",
    r"^[^\s]+(\s+[^\s]+)*$",
    r"^([A-Z][a-z]+ ?)+$",
    r"^([a-zA-Z0-9_-]+,?)+$",
    r"^(\w+\s*,\s*)*\w+$",
    r"^(?:[^\"\\]|\\.)*$",
    r"^\"(?:[^\"\\]+|\\.)*\"$",
    r"^([a-z0-9]+[._-]?)*[a-z0-9]+$",
    r"^(?:\{[^}]*\}|[^{}]+)*$",
)


def _matches(tree: Node, text: str) -> bool:
    return len(text) in _ends(tree, text, frozenset({0}))


@settings(max_examples=300, deadline=None)
@given(_PATTERNS, st.lists(st.text(alphabet="ab1", max_size=7), min_size=10, max_size=30))
def test_shorter_rounds_make_the_same_texts(pattern: str, texts: list[str]) -> None:
    tree = parse(pattern, whole=True)
    short = shortened(tree)
    for text in texts:
        assert _matches(short, text) == _matches(tree, text) == bool(re.fullmatch(pattern, text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("(a+)+", "a+"),
        ("(a*)*", "a*"),
        ("(a?)+", "a*"),
        ("(?:[a-c]+|x|d*)*", "[a-dx]*"),
        ("([a-z]+ ?)+", "[a-z]+(?: [a-z]+)* ?"),
        ('("[^"]*"|[^"]*)*', '[^"]*("[^"]*"[^"]*)*'),
        ("(-?[a-z]+)*", "(-?[a-z])*"),
        ("(?:)*", ""),
    ],
)
def test_what_is_the_same_is_written_the_same(pattern: str, same: str) -> None:
    assert rendered(with_distinct_rounds(parse(pattern, whole=True))) == rendered(parse(same, whole=True))


@pytest.mark.parametrize("pattern", _WRITTEN)
def test_what_people_write_is_admitted(pattern: str) -> None:
    assert with_distinct_rounds(parse(pattern))


@pytest.mark.parametrize("name", FORMATS)
def test_rounds_of_formats_are_apart(name: str) -> None:
    assert with_distinct_rounds(parse(FORMATS[name]))


@pytest.mark.parametrize("pattern", [r"([a-z]+(-[a-z]+)*\.?)+", r"(\d+(\.\d+)?,?)+", r"(\s*\w+\s*,?)+", "(ab*a?)*"])
def test_rounds_that_run_into_each_other_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="rounds of a repeated group"):
        with_distinct_rounds(parse(pattern))
