"""Patterns: what the grammar admits, a regular expression engine finds too, and the other way round."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import checkable, walk
from heptagram_backend.schema.charset import EVERYTHING, complement, intersection, of, to_json_text, union
from heptagram_backend.schema.regex import PatternError, parse
from tests.preprocess.oracle import Oracle, strict_loads

_ORACLE = Oracle()
_ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\d", "\\n", '"', "\\\\", "\\S", "[\\w-]", "é"])
_COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{0,1}", "*?"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, _COUNTS).map(lambda pair: f"({pair[0]}){pair[1]}"),
        inner.map(lambda one: f"(?:{one}|)"),
    ),
    max_leaves=5,
)
_TEXTS = st.text(alphabet='ab1 \n"\\é-', max_size=6)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["^", ""]), _PATTERNS, st.sampled_from(["$", ""]), st.lists(_TEXTS, max_size=12), st.integers())
def test_what_is_admitted_is_found(start: str, body: str, end: str, texts: list[str], seed: int) -> None:
    pattern = start + body + end
    try:
        walked = walk({"type": "string", "pattern": pattern}, "p")
    except RequestError as error:
        assert "rounds of a repeated group" in str(error)  # noqa: PT017 - most patterns raise nothing
        return
    for text in texts:
        if _ORACLE.accepts(walked, text):
            assert re.search(pattern, text), (pattern, text)
    sample = _ORACLE.sample(walked, random.Random(seed), steps=120)
    if sample is not None:
        assert re.search(pattern, strict_loads(sample)), (pattern, sample)


@settings(max_examples=120, deadline=None)
@given(st.text(alphabet="ab", max_size=4), st.lists(st.text(alphabet="ab", max_size=5), max_size=12))
def test_nothing_is_lost_on_plain_characters(body: str, texts: list[str]) -> None:
    for pattern in (f"^{body}$", f"^(?:{body}){{2}}$", f"^(?:{body}|a+)*$", body):
        walked = walk({"type": "string", "pattern": pattern}, "p")
        for text in texts:
            assert _ORACLE.accepts(walked, text) == bool(re.search(pattern, text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)b", "(?i)a", "\\bx", "(a)\\1", "\\p{L}", "[a", "(a", "a)", "a**", "a++", "{2}",
        "x{,3}", "a{3,2}", "[b-a]", "[\\d-z]", "[]a]", "[[:alpha:]]", "\\", "a^b", "a$b", "(?:^a|b)c", "\\ud83d",
        "\\Z", "$*", "^([a-z]+ ?){1,16}$", "(a?b?){2}", "((a+,?){2},)*", "(a|b+){3,}",
    ],
)  # fmt: skip
def test_what_is_not_regular_or_not_clear_is_refused(pattern: str) -> None:
    with pytest.raises(RequestError, match="at #/pattern: the pattern cannot be enforced"):
        walk({"type": "string", "pattern": pattern}, "p")


@pytest.mark.parametrize("pattern", ["^\x01$", "\\x00", "^a\\v$"])
def test_characters_that_json_text_cannot_hold_leave_nothing(pattern: str) -> None:
    with pytest.raises(RequestError, match="no string satisfies"):
        walk({"type": "string", "pattern": pattern}, "p")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=12))
def test_arbitrary_patterns_raise_nothing_else(pattern: str) -> None:
    try:
        parse(pattern)
    except PatternError:
        return
    re.compile(pattern)


@settings(max_examples=100)
@given(st.lists(st.characters(exclude_categories=["Cs"]), max_size=6), st.characters(exclude_categories=["Cs"]))
def test_sets_of_characters(members: list[str], one: str) -> None:
    ranges = of(members)
    code = ((ord(one), ord(one)),)
    assert bool(intersection(ranges, code)) == (one in members)
    assert bool(intersection(complement(ranges), code)) == (one not in members)
    assert union(ranges, complement(ranges)) == EVERYTHING
    assert bool(to_json_text(code)) == (one >= " " or one in "\b\t\n\f\r")


def test_every_kind_of_character_can_be_written() -> None:
    """Also those at the borders of UTF-8's lengths, which a careless class of ranges loses."""
    walked = walk({"type": "string", "minLength": 1}, "p")
    borders = (0x20, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xCFFF, 0xD000, 0xD7FF, 0xE000, 0xFFFF)
    for code in (*borders, 0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF, 0x22, 0x5C, 0x0A):
        assert _ORACLE.accepts(walked, chr(code)), hex(code)
    for junk in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\x80", b"\x01"):
        assert not _ORACLE.matcher(walked).accept_text(b'"' + junk + b'"')


def test_hazardous_patterns_are_not_left_to_a_backtracking_check() -> None:
    schema = {
        "properties": {
            "pattern": {"type": "string", "pattern": "^(a+)+$"},
            "safe": {"pattern": "^[a-z]+-[0-9]{2}$"},
            "data": {"const": {"pattern": "^(a+)+$"}},
        },
        "allOf": [{"pattern": "^(a|aa)*b$"}],
    }
    assert checkable(schema) == {
        "properties": {
            "pattern": {"type": "string"},
            "safe": {"pattern": "^[a-z]+-[0-9]{2}$"},
            "data": {"const": {"pattern": "^(a+)+$"}},
        },
        "allOf": [{}],
    }
