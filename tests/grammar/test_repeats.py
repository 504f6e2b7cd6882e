"""Long counts: masks and matcher agree, exactly the counted lengths are taken, and every text has one reading."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.repeats import STEP, split_counts
from heptagram_backend.schema import walk_parameters
from tests.formats.smollm2 import factory, token_bytes


def disagreements(grammar: Grammar) -> list[bytes]:
    """Tokens that the mask of this place and the matcher judge differently."""
    row = np.full(-(-len(token_bytes()) // 32), -1, np.int32)
    grammar.fill(row)
    allowed = np.unpackbits(row.view(np.uint8), bitorder="little")
    found = []
    for token, piece in enumerate(token_bytes()):
        if piece:
            accepted = grammar.accept(token)
            if accepted:
                grammar.rollback(1)
            if accepted != allowed[token]:
                found.append(piece)
    return found


@pytest.mark.parametrize(
    "string",
    [
        {"maxLength": 2048},
        {"minLength": 200},
        {"minLength": 130, "maxLength": 300},
        {"pattern": "^[^a-c]{0,200}$"},
        {"pattern": "^x[^a-c]{150,}$"},
    ],
)
def test_masks_of_long_counts_allow_what_the_matcher_takes(string: dict[str, object]) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string", **string}}, "required": ["q"]}
    spec = ConstraintSpec("json_schema", json.dumps(walk_parameters(schema, "parameters")))
    for text in ('{"q": "', '{"q": "x', '{"q": "x{} é€', '{"q": "x' + "y" * 126, '{"q": "x' + "y" * 199):
        grammar = factory().matcher(spec)
        assert grammar.accept_text(text.encode())
        assert disagreements(grammar) == []
        grammar.close()


@pytest.mark.parametrize(("low", "high"), [(0, 129), (0, 300), (129, 129), (130, 257), (256, 512), (1, 385)])
def test_exactly_the_counted_lengths_are_taken(low: int, high: int) -> None:
    spec = ConstraintSpec("ebnf", f'root ::= "<" [^b]{{{low},{high}}} "b"')
    grammar = factory().matcher(spec)
    assert grammar.accept_text(b"<")
    taken = []
    for length in range(high + 2):
        if grammar.accept_text(b"b"):
            taken.append(length)
            grammar.rollback(1)
        if not grammar.accept_text("é".encode()):
            break
    assert taken == list(range(low, high + 1))
    assert length == high
    grammar.close()


@given(st.integers(0, 600), st.integers(-1, 600))
def test_no_long_count_is_left(low: int, more: int) -> None:
    high = -1 if more < 0 else low + more
    rules = split_counts({"root": f'("[x]{{0, 999}}" item{{{low}, {high}}})', "item": '(([a-z\\]"]))'})
    bodies = " ".join(rules.values()).replace("{0, 999}", "")
    counts = [int(text) for part in bodies.split("{")[1:] for text in part.split("}")[0].split(",")]
    assert all(count <= STEP for count in counts)
    assert '"[x]{0, 999}"' in rules["root"]


def test_what_is_short_or_no_class_stays() -> None:
    rules = {"root": "(a{0, 128} b{3, 500} a{5, -1})", "a": "(([x]))", "b": '(([x] "y"))'}
    assert split_counts(rules) == rules
