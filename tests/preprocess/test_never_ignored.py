"""Nothing that a schema says is ignored: what is easily overlooked is enforced, checked or refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import checkable, walk
from heptagram_backend.schema.keywords import KNOWN
from heptagram_backend.validate import InvalidOutputError, OutputValidator
from heptagram_wire import errors as codes
from tests.preprocess.asking import body, refused, tool
from tests.preprocess.oracle import Oracle, valid
from tests.preprocess.schemas import VALUES

_ORACLE = Oracle()
_INT = {"type": "integer"}
_VALUES: tuple[Any, ...] = (
    None, True, 0, 1, 2.5, 7, -3, "", "a", "ab", "abc", "2024-02-29", "2024-02-30", [], [1], [1, 1], ["a", 1],
    [1, 2, 3], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": 2}, {"c": 1}, {"ab": 1},
)  # fmt: skip

# By keyword, a schema of it alone and without `type`.
_ALONE: dict[str, dict[str, Any]] = {
    "properties": {"properties": {"a": _INT}},
    "required": {"required": ["a"]},
    "additionalProperties": {"additionalProperties": _INT},
    "propertyNames": {"propertyNames": {"maxLength": 1}},
    "patternProperties": {"patternProperties": {"^a": _INT}},
    "unevaluatedProperties": {"unevaluatedProperties": False},
    "minProperties": {"minProperties": 1},
    "maxProperties": {"maxProperties": 1},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"dependentSchemas": {"a": {"required": ["b"]}}},
    "items": {"items": _INT},
    "prefixItems": {"prefixItems": [_INT]},
    "unevaluatedItems": {"unevaluatedItems": False},
    "minItems": {"minItems": 1},
    "maxItems": {"maxItems": 1},
    "uniqueItems": {"uniqueItems": True},
    "contains": {"contains": {"const": 1}},
    "minContains": {"contains": {"const": 1}, "minContains": 2},
    "maxContains": {"contains": {"const": 1}, "maxContains": 1},
    "minLength": {"minLength": 2},
    "maxLength": {"maxLength": 1},
    "pattern": {"pattern": "^a"},
    "format": {"format": "date"},
    "minimum": {"minimum": 1},
    "maximum": {"maximum": 1},
    "exclusiveMinimum": {"exclusiveMinimum": 1},
    "exclusiveMaximum": {"exclusiveMaximum": 1},
    "multipleOf": {"multipleOf": 2},
    "type": {"type": "string"},
    "enum": {"enum": [1, "a"]},
    "const": {"const": 1},
    "anyOf": {"anyOf": [{"minLength": 2}, {"maxLength": 0}]},
    "oneOf": {"oneOf": [{"minLength": 2}, {"minLength": 3}]},
    "allOf": {"allOf": [{"minLength": 2}, {"maxLength": 2}]},
    "$ref": {"$ref": "#/$defs/a", "$defs": {"a": {"minLength": 2}}},
    "not": {"not": {"minLength": 2}},
    "if": {"if": {"minLength": 2}, "then": {"maxLength": 2}},
    "then": {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "else": {"if": {"required": ["a"]}, "else": {"required": ["b"]}},
}


def test_every_known_keyword_is_tried() -> None:
    assert _ALONE.keys() == KNOWN


@pytest.mark.parametrize("keyword", _ALONE)
def test_keywords_without_a_type(keyword: str) -> None:
    schema = _ALONE[keyword]
    assert any(not valid(schema, value) for value in _VALUES), "the values tell nothing about this keyword"
    try:
        walked = walk(schema, "p")
    except RequestError as error:
        assert error.wire.code == codes.UNSUPPORTED_SCHEMA  # noqa: PT017 - most raise nothing
    else:
        through = [value for value in _VALUES if _ORACLE.accepts(walked, value)]
        assert through
        assert all(valid(schema, value) for value in through)
    walked = walk(schema, "p", unenforced="validate")
    checker = OutputValidator({}, checkable(schema))
    for value in _VALUES:
        if _ORACLE.accepts(walked, value) and not valid(schema, value):
            with pytest.raises(InvalidOutputError):
                checker.check_text(json.dumps(value))


_JUNK = st.recursive(
    st.one_of(VALUES, st.sampled_from([True, False, [], {}, {"type": "string"}, ["a"], "#", "#/$defs/x", -1, 2.5])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(sorted(KNOWN)), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*sorted(KNOWN), "$defs"]), _JUNK, max_size=4),
    st.sampled_from(["refuse", "validate"]),
)
def test_what_is_no_schema_is_an_error_of_the_request_and_nothing_else(schema: dict[str, Any], mode: Any) -> None:
    try:
        walk(schema, "p", unenforced=mode)
    except RequestError as error:
        assert error.wire.param == "p"  # noqa: PT017 - some raise nothing
        return
    checker = OutputValidator({}, checkable(schema))
    for value in _VALUES:
        with suppress(InvalidOutputError):
            checker.check_text(json.dumps(value))


@pytest.mark.parametrize(
    ("beside", "right", "wrong"),
    [
        ({}, {"a": [None]}, {}),
        ({"additionalProperties": True}, {"a": "x"}, {}),
        ({"additionalProperties": _INT}, {"a": 1}, {"a": "x"}),
        ({"properties": {"b": _INT}}, {"b": 1, "a": 1}, {"b": 1}),
        ({"properties": {"b": _INT}, "additionalProperties": {"type": "null"}}, {"a": None}, {"a": 1}),
        ({"patternProperties": {"^a": _INT}}, {"a": 1}, {"a": "x"}),
        ({"patternProperties": {"^a": _INT}, "additionalProperties": False}, {"a": 1}, {}),
        ({"anyOf": [{"properties": {"a": _INT}}, {"properties": {"a": {"type": "null"}}}]}, {"a": None}, {"a": "x"}),
        ({"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": _INT}}}}, {"a": 1}, {"a": "x"}),
        ({"minProperties": 1, "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 1}),
    ],
)
def test_required_that_is_not_declared_is_generated(beside: dict[str, Any], right: Any, wrong: Any) -> None:
    walked = walk({"type": "object", "required": ["a"], **beside}, "p")
    if "b" in right:  # declared ones come first
        right = {"b": right["b"], "a": right["a"]}
    assert _ORACLE.accepts(walked, right)
    assert not _ORACLE.accepts(walked, wrong)


@pytest.mark.parametrize(
    "beside",
    [
        {"additionalProperties": False},
        {"unevaluatedProperties": False},
        {"properties": {"b": _INT}, "additionalProperties": False},
        {"patternProperties": {"^b": _INT}, "additionalProperties": False},
        {"propertyNames": {"enum": ["b"]}},
        {"propertyNames": {"minLength": 2}},
        {"maxProperties": 0},
        {"not": {"required": ["a"]}},
        {"allOf": [{"properties": {"b": _INT}, "additionalProperties": False}]},
    ],
)
@pytest.mark.parametrize("unenforced", ["refuse", "validate"])
def test_required_that_cannot_be_there_leaves_nothing(beside: dict[str, Any], unenforced: Any) -> None:
    with pytest.raises(RequestError, match="no value satisfies the schema"):
        walk({"type": "object", "required": ["a"], **beside}, "p", unenforced=unenforced)


def test_required_may_be_split_over_cases() -> None:
    """The usual way to say: at least one of these."""
    cases = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    walked = walk({"type": "object", "properties": {"a": _INT, "b": _INT}, **cases}, "p")
    assert [_ORACLE.accepts(walked, value) for value in ({}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1})] == [
        False,
        *[True] * 3,
    ]


@pytest.mark.parametrize("name", ["f", "F" * 64, "a-b_c.d"])
def test_a_tool_declared_twice_is_refused(name: str) -> None:
    wire = refused(body(tools=[tool(name), tool("other"), tool(name)]))
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "tools[2].function.name")


@pytest.mark.parametrize("name", ["", " ", "a b", 'a"b', "a\nb", "<f>", "é", "x" * 65, "\x00"])
def test_a_tool_whose_name_cannot_be_written_is_refused(name: str) -> None:
    assert refused(body(tools=[tool(name)])).param == "tools[0].function.name"


def test_a_property_declared_twice_is_refused_as_json() -> None:
    raw = json.dumps(body(tools=[tool(parameters={"type": "object", "properties": {"twice": {}, "TWICE": {}}})]))
    assert refused(raw.replace("TWICE", "twice")).code == codes.INVALID_JSON
