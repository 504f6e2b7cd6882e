"""The comparison itself can fail: it tells a grammar that admits too much, and one that refuses without a reason."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from heptagram_backend import schema as schemas
from heptagram_backend.errors import RequestError
from tests.differential import compare as comparing
from tests.differential.compare import compare
from tests.differential.corpus import Group, Instance, of_bfcl, reports
from tests.differential.counts import Counts, as_is
from tests.differential.grammars import by_llguidance, walked
from tests.differential.instances import Drawer, bent
from tests.differential.narrowings import REASONS, reason, typed
from tests.differential.subschemas import rewritten, subschemas
from tests.preprocess.oracle import valid

_INT = {"type": "integer"}
_GROUP = Group("s", "n", _INT, parameters=False, instances=(Instance(1), Instance("a")))


@pytest.mark.parametrize(("answer", "fault"), [(True, "accepted though invalid"), (False, "no documented reason")])
def test_a_wrong_grammar_is_told(answer: bool, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "as_json", lambda enforced: lambda value: answer)
    monkeypatch.setitem(comparing._FORMS, "JSON", lambda enforced: lambda value: answer)
    counts = Counts()
    compare(_GROUP, counts, drawn=0)
    assert len(counts.faults) == 1
    assert fault in counts.faults[0]
    assert counts.judged["JSON", not answer, answer] == 1


@pytest.mark.parametrize(
    ("schema", "value", "accepted", "why"),
    [
        ({"minLength": 1}, 5, "x", "keyword without type"),
        ({"type": "object", "properties": {"a": _INT}}, {"a": 1, "b": 2}, {"a": 1}, "undeclared property"),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, {"b": 1, "a": 2}, {"a": 2, "b": 1}, "order"),
        (_INT, 2.0, 2, "integer as 1.0"),
        ({"type": "number", "minimum": 0}, 1.23456789, 1.234568, "exponent or decimals"),
        ({"type": "integer"}, 10**40, 10**31, "more digits"),
        ({"type": "string", "maxLength": 9}, 'a"', "ax", "escape in a bounded string"),
        ({"type": "string"}, "a｜b", "axb", "marker of DSML"),
        ({"allOf": [{"prefixItems": [_INT]}, {"unevaluatedItems": True}]}, [1, 2], [1], "item that only"),
        ({"type": "string", "maxLength": 10**9}, "a" * 20_000, "a" * 16_384, "length beyond the limit"),
        ({"type": "string"}, "a", "b", None),
        ({"type": "number"}, 1.23456789, 1.234568, None),
    ],
)
def test_a_reason_is_what_makes_the_difference(schema: Any, value: Any, accepted: Any, why: str | None) -> None:
    found = reason(schema, value, lambda tried: tried == accepted and repr(tried) == repr(accepted), lambda _: None)
    assert (found or "").startswith(why) if why else found is None


def test_every_reason_is_documented_and_every_documented_one_is_known() -> None:
    assert set(re.findall(r"^- ([^:]+):", schemas.__doc__ or "", re.MULTILINE)) == REASONS


def test_a_keyword_speaks_of_a_type_in_every_place() -> None:
    schema = {"properties": {"type": {"minLength": 1}}, "if": {"minimum": 0}, "enum": [{"minLength": 1}]}
    narrowed = typed(schema)
    assert narrowed["properties"]["type"] == {"minLength": 1, "type": ["string"]}
    assert narrowed["enum"] == schema["enum"]
    assert next(sorted(node) for node in subschemas(schema)) == ["enum", "if", "properties"]
    assert rewritten(schema, lambda node: node) == schema


def test_what_counts_as_written_as_it_is() -> None:
    written = {"type": "object", "properties": {"a": {"type": "array", "description": "d"}}}
    assert as_is(written, walked(written, parameters=True))
    united = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    assert not as_is(united, walked(united, parameters=True))


def test_refusals_are_counted_by_their_keyword() -> None:
    for schema, keyword in (
        ({"contains": {}}, "contains"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "pattern"),
    ):
        counts = Counts()
        compare(Group("s", "n", schema, parameters=False), counts, drawn=0)
        assert list(counts.refused) == [("unsupported_schema", keyword)]


def test_drawn_values_are_mostly_valid_and_bent_ones_often_not() -> None:
    chance = random.Random(1)
    tally = {"drawn": 0, "bent": 0}
    groups = [group for group in reports() if group.instances]
    for group in groups:
        for _ in range(10):
            value = Drawer(group.schema, chance).value(group.schema)
            tally["drawn"] += valid(group.schema, value)
            tally["bent"] += valid(group.schema, bent(value, chance))
    assert tally["drawn"] > 0.6 * 10 * len(groups) > tally["bent"]


def test_the_corpus_is_json_schema_throughout() -> None:
    known = {"object", "array", "string", "integer", "number", "boolean", "null", None}
    for group in of_bfcl():
        assert {node.get("type") for node in subschemas(group.schema)} <= known


def test_llguidance_refuses_what_it_cannot_enforce() -> None:
    with pytest.raises(RequestError, match="uniqueItems"):
        by_llguidance({"uniqueItems": True})
    assert by_llguidance({"type": "object", "properties": {"a": _INT}})({"a": 1})
