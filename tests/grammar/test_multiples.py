"""Multiples end, and no multiple of few digits is lost."""

from __future__ import annotations

import json

import pytest

from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.ebnf import MOST_DIGITS
from heptagram_backend.lowering import lower
from heptagram_backend.multiples import end_multiples
from heptagram_backend.schema import walk
from heptagram_backend.xgrammar_impl import _json_rules
from tests.formats import smollm2
from tests.grammar.test_repeats import disagreements
from tests.preprocess.oracle import Oracle

_ORACLE = Oracle()


@pytest.mark.parametrize(("step", "digits"), [(2, 32), (3, 32), (7, 32), (60, 32), (97, 9), (512, 9), (1000, 32)])
def test_multiples_end(step: int, digits: int) -> None:
    enforced = walk({"type": "integer", "multipleOf": step}, "p")
    for number in (*range(0, 5 * step, step), 10 ** (digits - 1) // step * step, -(10**8 // step) * step):
        assert _ORACLE.accepts(enforced, number)
        assert not _ORACLE.accepts(enforced, number + 1)
    assert not _ORACLE.accepts(enforced, 10**MOST_DIGITS * step)
    matcher = _ORACLE.matcher(enforced)
    assert not matcher.accept_text(b"7" * (MOST_DIGITS + 1))


@pytest.mark.parametrize("step", [3, 12, 97])
def test_every_place_leads_to_an_end(step: int) -> None:
    """Whatever digit is taken, the mask allows another one or the end, and matcher and mask agree."""
    spec = ConstraintSpec("json_schema", json.dumps(walk({"type": "integer", "multipleOf": step}, "p")))
    for digit in b"1379":
        grammar = smollm2.factory().matcher(spec)
        taken = 0
        while grammar.accept_text(bytes([digit])):
            taken += 1
            assert taken <= MOST_DIGITS
            assert grammar.completed or any(_accepts(grammar, bytes([other])) for other in b"0123456789")
        grammar.close()
    grammar = smollm2.factory().matcher(spec)
    assert grammar.accept_text(b"-" + b"1" * 9)
    assert disagreements(grammar) == []
    grammar.close()


def _accepts(grammar: Grammar, text: bytes) -> bool:
    accepted = grammar.accept_text(text)
    if accepted:
        grammar.rollback(1)
    return accepted


def test_a_step_is_written_once_for_all_schemas() -> None:
    one = {"type": "json_schema", "json_schema": {"type": "integer", "multipleOf": 3}}
    two = {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "integer", "multipleOf": 3}}}
    alone = lower(one, _json_rules)["grammar"].count("multiple_of_3_")
    both = lower({"type": "sequence", "elements": [one, two, one]}, _json_rules)["grammar"].count("multiple_of_3_")
    assert alone < both < alone + 20


def test_rules_without_multiples_stay() -> None:
    rules = {"root": '("a" basic_integer)', "basic_integer": '"1"'}
    assert end_multiples(rules) == rules
