"""A regular expression alone as a constraint is read as ours are, not by the library's own reader."""

from __future__ import annotations

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from heptagram_backend.xgrammar_impl import XGrammarFactory
from tests.formats import smollm2
from tests.grammar.test_repeats import disagreements

FACTORY = XGrammarFactory([*(bytes([value]) for value in range(256)), None], 257, [256])


def begins(pattern: str, text: bytes) -> bool:
    grammar = FACTORY.matcher(ConstraintSpec("regex", pattern))
    try:
        return grammar.accept_text(text)
    finally:
        grammar.close()


@pytest.mark.parametrize("pattern", ["[^a-c]{1,200}", "[^a-c]{1,20}", ".{1,300}", "[é-日]{1,3}", "([^a-c]{0,200}b){2}"])
@pytest.mark.parametrize("text", [b"\xc0\xaf", b"\xed\xa0\x80", b"\xe0\x80\xaf", b"\xf5\x80\x80\x80", b"\xff"])
def test_what_is_no_text_is_not_taken(pattern: str, text: bytes) -> None:
    assert not begins(pattern, text)
    assert begins(pattern, "é".encode())


def test_a_dot_is_no_new_line() -> None:
    assert not begins(".{1,300}", b"\n")


def test_exactly_the_counted_lengths_are_taken() -> None:
    grammar = FACTORY.matcher(ConstraintSpec("regex", "^[^a-c]{130,300}$"))
    complete = []
    for length in range(302):
        if grammar.completed:
            complete.append(length)
        if not grammar.accept_text("é".encode()):
            break
    assert complete == list(range(130, 301))
    assert length == 300
    grammar.close()


def test_masks_of_a_long_count_allow_what_the_matcher_takes() -> None:
    grammar = smollm2.factory().matcher(ConstraintSpec("regex", "[^a-c]{0,200}"))
    assert grammar.accept_text(b"x" * 190)
    assert disagreements(grammar) == []
    grammar.close()


@pytest.mark.parametrize("pattern", ["(?=a)b", "a\\b", "[", "[^\\s\\S]"])
def test_what_cannot_be_enforced_is_refused(pattern: str) -> None:
    with pytest.raises(RequestError) as caught:
        FACTORY.compile(ConstraintSpec("regex", pattern))
    assert caught.value.wire.code == "unsupported_schema"
