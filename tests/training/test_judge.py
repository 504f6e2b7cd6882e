"""BFCL's rules for an accepted answer."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.training import bfcl
from heptagram_backend.training.example import Call
from heptagram_backend.training.judge import are_accepted

WANTED: tuple[tuple[str, bfcl.Accepted], ...] = (
    ("f", {"city": ["Oslo", "Oslo, Norway"], "days": [3], "unit": ["c", ""]}),
    ("g", {}),
)


@pytest.mark.parametrize(
    ("calls", "accepted"),
    [
        ([("f", {"city": "oslo norway", "days": 3}), ("g", {})], True),
        ([("g", {}), ("f", {"city": "Oslo", "days": 3.0, "unit": "C"})], True),
        ([("f", {"city": "Oslo", "days": 3})], False),
        ([("f", {"city": "Oslo", "days": 3}), ("g", {}), ("g", {})], False),
        ([("f", {"city": "Bergen", "days": 3}), ("g", {})], False),
        ([("f", {"city": "Oslo"}), ("g", {})], False),
        ([("f", {"city": "Oslo", "days": True}), ("g", {})], False),
        ([("f", {"city": "Oslo", "days": 3, "more": 1}), ("g", {})], False),
        ([("f", {"city": "Oslo", "days": 3}), ("h", {})], False),
    ],
)
def test_calls_are_accepted(calls: list[tuple[str, dict[str, Any]]], accepted: bool) -> None:
    assert are_accepted([Call(*call) for call in calls], WANTED) is accepted


def test_values_inside_of_values_have_accepted_lists_of_their_own() -> None:
    wanted = (("f", {"where": [{"city": ["Oslo"], "zip": ["0150", ""]}], "tags": [["a", "B"]]}),)
    assert are_accepted([Call("f", {"where": {"city": "Oslo"}, "tags": ["A", "b"]})], wanted)
    assert not are_accepted([Call("f", {"where": {"zip": "0150"}, "tags": ["A", "b"]})], wanted)
    assert not are_accepted([Call("f", {"where": {"city": "Oslo"}, "tags": ["A"]})], wanted)


def test_no_call_is_wanted() -> None:
    assert are_accepted([], ())
    assert not are_accepted([Call("f", {})], ())


@pytest.mark.skipif(bfcl.data_folder() is None, reason=f"pip install --no-deps {bfcl.REQUIREMENT}")
def test_the_first_accepted_answers_of_the_corpus_are_accepted() -> None:
    for category in bfcl.EVALUATION:
        records = bfcl.records(category)
        right = sum(are_accepted(record.example().calls, record.accepted) for record in records)
        assert right >= 0.99 * len(records), category
