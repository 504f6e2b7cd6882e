"""Keyword by keyword: what the walker writes, and what it refuses at which place."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import Budget, SchemaLimits, walk, walk_parameters
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError

_INT: dict[str, Any] = {"type": "integer"}
_STR: dict[str, Any] = {"type": "string"}
_CLOSED = {"type": "object", "properties": {"a": _INT}, "required": [], "additionalProperties": False}


def _refused(schema: Any, budget: Budget | None = None) -> WireError:
    with pytest.raises(RequestError) as caught:
        walk(schema, "p", budget)
    assert caught.value.wire.param == "p"
    assert caught.value.wire.message.startswith("at #")
    return caught.value.wire


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, {}),
        ({"title": "t", "description": "d", "default": 1, "x-y": 2, "$comment": "c"}, {}),
        ({"type": "string", "nullable": True}, _STR),
        ({"type": ["integer", "number"]}, {"type": "number"}),
        ({"type": ["string", "null"]}, {"anyOf": [_STR, {"type": "null"}]}),
        ({"minItems": 1}, {"type": "array", "items": {}, "minItems": 1}),
        ({"type": "integer", "minLength": 3, "format": "int32"}, _INT),
        ({"properties": {"a": _INT}}, _CLOSED),
        ({"type": "object", "properties": {"a": _INT}, "additionalProperties": True}, _CLOSED),
        ({"type": "object", "properties": {"a": _INT, "b": False}}, _CLOSED),
        ({"type": "object"}, {"type": "object", "additionalProperties": {}}),
        ({"type": "object", "additionalProperties": _INT}, {"type": "object", "additionalProperties": _INT}),
        ({"type": "object", "propertyNames": {"type": "string"}}, {"type": "object", "additionalProperties": {}}),
        (
            {"type": "object", "required": ["b"], "additionalProperties": _INT},
            {"type": "object", "properties": {"b": _INT}, "required": ["b"], "additionalProperties": False},
        ),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": False}, {"type": "array", "items": {}, "maxItems": 0}),
        ({"type": "array", "uniqueItems": True, "maxItems": 1}, {"type": "array", "items": {}, "maxItems": 1}),
        ({"type": "array", "prefixItems": [_INT]}, {"type": "array", "prefixItems": [_INT], "items": False}),
        ({"enum": ["a", 1, "a", 1.0]}, {"enum": ["a", 1.0]}),
        ({"type": "string", "enum": ["a", 1]}, {"const": "a"}),
        ({"enum": [1, 2], "const": 2}, {"const": 2}),
        ({"enum": ["a", "b"], "minimum": 3}, {"enum": ["a", "b"]}),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9.5}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 11}, {"enum": [5, 10]}),
        ({"type": "number", "multipleOf": 2}, {"type": "integer", "multipleOf": 2}),
        ({"type": "number", "minimum": 1e-9}, {"type": "number", "minimum": 1e-6}),
        ({"anyOf": [_INT, False]}, _INT),
        ({"anyOf": [{"anyOf": [_INT, _STR]}, {"type": "null"}]}, {"anyOf": [_INT, _STR, {"type": "null"}]}),
        ({"allOf": [_INT]}, _INT),
        ({"allOf": [_INT, {"minimum": 1}], "maximum": 3}, {"type": "integer", "minimum": 1, "maximum": 3}),
        ({"type": ["integer", "string"], "anyOf": [{"type": "number"}, {"type": "null"}]}, _INT),
        ({"oneOf": [_INT, _STR]}, {"anyOf": [_INT, _STR]}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": _INT}}, {"$ref": "#/$defs/d0", "$defs": {"d0": _INT}}),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": _INT}}, {"$ref": "#/$defs/d0", "$defs": {"d0": _INT}}),
        ({"$ref": "#/$defs/a", "minimum": 2, "$defs": {"a": _INT}}, {"type": "integer", "minimum": 2}),
        ({"allOf": [{"type": "object", "properties": {"a": _INT}}, {"properties": {"a": True}}]}, _CLOSED),
    ],
)
def test_written(schema: Any, expected: Any) -> None:
    assert walk(schema, "p") == expected


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"typ": "object"}, "#/typ"),
        ({"properties": {"a/b": {"not": {}}}}, "#/properties/a~1b/not"),
        ({"if": {}}, "#/if"),
        ({"dependentRequired": {}}, "#/dependentRequired"),
        ({"contains": {}}, "#/contains"),
        ({"$dynamicRef": "#a"}, "#/$dynamicRef"),
        ({"$ref": "other.json"}, "#/$ref"),
        ({"$ref": "#anchor"}, "#/$ref"),
        ({"$ref": "#/$defs/none"}, "#/$ref"),
        ({"$ref": "#/default", "default": {}}, "#/$ref"),
        ({"properties": {"a": {"$id": "x"}}}, "#/properties/a/$id"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "#/patternProperties"),
        ({"type": "object", "propertyNames": {"maxLength": 2}}, "#/propertyNames"),
        ({"type": "object", "minProperties": 2}, "#/minProperties"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"type": "string", "format": "regex"}, "#/format"),
        ({"type": "string", "format": "date", "pattern": "a"}, "#"),
        ({"type": "string", "pattern": "^ab|c$", "minLength": 2}, "#"),
        ({"enum": ["aa", "b"], "minLength": 2}, "#/minLength"),
        ({"const": 2**63}, "#"),
        ({"type": "integer", "multipleOf": 3, "minimum": 0}, "#/multipleOf"),
        ({"type": "number", "multipleOf": 0.01}, "#/multipleOf"),
        ({"oneOf": [_INT, {"type": "number"}]}, "#/oneOf"),
        ({"oneOf": [{"properties": {"a": _INT}}, {"properties": {"b": _INT}}]}, "#/oneOf"),
        ({"anyOf": [_INT], "oneOf": [_INT]}, "#"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "#/pattern"),
        ({"allOf": [{"unevaluatedProperties": False}, {"properties": {"a": {}}}]}, "#/allOf/0/unevaluatedProperties"),
        ({"anyOf": [{"$ref": "#"}, _INT]}, "#"),
    ],
)
def test_refused(schema: Any, pointer: str) -> None:
    wire = _refused(schema)
    assert wire.code == codes.UNSUPPORTED_SCHEMA
    assert wire.message.startswith(f"at {pointer}: ")


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"type": "strng"},
        {"type": []},
        {"type": 1},
        {"properties": []},
        {"properties": {"a": 1}},
        {"type": "object", "required": True},
        {"type": "array", "items": [_INT]},
        {"type": "string", "minLength": -1},
        {"type": "string", "maxLength": "3"},
        {"type": "string", "pattern": 3},
        {"type": "integer", "minimum": "0"},
        {"type": "integer", "exclusiveMinimum": True},
        {"type": "integer", "multipleOf": 0},
        {"anyOf": []},
        {"allOf": {}},
        {"enum": "a"},
    ],
)
def test_what_is_no_schema_is_invalid(schema: Any) -> None:
    assert _refused(schema).code == codes.INVALID_VALUE


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "string", "enum": [1, 2]},
        {"allOf": [_INT, _STR]},
        {"type": "object", "properties": {"a": {}}, "minProperties": 2},
    ],
)
def test_what_nothing_finite_satisfies_is_refused(schema: Any) -> None:
    assert "no value satisfies the schema" in _refused(schema).message


def test_endless_branches_are_cut_and_finite_recursion_stays() -> None:
    endless = {"type": "object", "properties": {"e": {"$ref": "#/$defs/e"}}, "required": ["e"]}
    schema = {
        "type": "object",
        "properties": {"never": {"$ref": "#/$defs/e"}, "list": {"type": "array", "items": {"$ref": "#/$defs/e"}}},
        "$defs": {"e": endless},
    }
    empty = {"type": "array", "items": {}, "maxItems": 0}
    assert walk(schema, "p")["properties"] == {"list": empty}
    assert "$defs" not in walk(schema, "p")
    assert walk({"type": "object", "properties": {"a": {"$ref": "#"}}}, "p")["$defs"]


def test_branches_of_one_of_are_told_apart_by_what_they_require() -> None:
    first = {"type": "object", "properties": {"a": _INT, "c": _INT}, "required": ["a"]}
    second = {"type": "object", "properties": {"b": _INT, "c": _INT}, "required": ["b"]}
    assert len(walk({"oneOf": [first, second]}, "p")["anyOf"]) == 2
    tagged = [
        {"type": "object", "properties": {"kind": {"const": kind}, "v": _INT}, "required": ["kind"]} for kind in "xy"
    ]
    assert len(walk({"oneOf": tagged}, "p")["anyOf"]) == 2
    many = [{"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in range(128)]
    assert len(walk({"oneOf": many}, "p")["anyOf"]) == 128
    assert _refused({"oneOf": [first, {**second, "required": []}]}).code == codes.UNSUPPORTED_SCHEMA


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{number}": {} for number in range(257)}},
        {"anyOf": [{"const": number} for number in range(129)]},
        {"enum": list(range(2_001))},
        {"enum": ["x" * 70_000]},
        {"type": "string", "minLength": 2_000},
        {"type": "string", "pattern": "a" * 1_025},
        {"type": "string", "pattern": "^(?:[ab]{99}-){400}$"},
        {"type": "array", "minItems": 5_000},
        {"anyOf": [{"type": "string", "maxLength": number} for number in range(10, 30)]},
        {"type": "object", "properties": {f"p{number}": {} for number in range(65)}, "minProperties": 1},
    ],
)
def test_size_is_bounded(schema: Any) -> None:
    assert _refused(schema).code in codes.SIZE_CODES


def test_depth_and_total_are_bounded() -> None:
    deep: Any = _INT
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    assert _refused(deep).code in codes.SIZE_CODES
    # Each level refers twice to the next with a sibling, so that resolving would double the work 60 times.
    doubling: dict[str, Any] = {
        f"l{level}": {"allOf": [{"$ref": f"#/$defs/l{level + 1}"}, {"$ref": f"#/$defs/l{level + 1}"}]}
        for level in range(60)
    }
    assert _refused({"$ref": "#/$defs/l0", "$defs": {**doubling, "l60": _INT}}).code in codes.SIZE_CODES
    assert _refused({"properties": {"a": {"$ref": "#", "minProperties": 1}}}).code in codes.SIZE_CODES


def test_schemas_of_one_request_share_the_budget() -> None:
    budget = Budget(SchemaLimits(nodes=5))
    walk({"type": "array"}, "p", budget)
    assert _refused({"type": "array"}, budget).code in codes.SIZE_CODES


def test_long_strings_are_lowered_to_the_limit() -> None:
    limits = SchemaLimits(max_length=100)
    assert "{0,100}" in walk({"type": "string", "maxLength": 10**9}, "p", Budget(limits))["pattern"]


@pytest.mark.parametrize("root", [{"enum": [{"a": 1}]}, {"$ref": "#/$defs/a"}, {"anyOf": [{"$ref": "#/$defs/a"}]}])
def test_parameters_may_be_any_form_of_object(root: dict[str, Any]) -> None:
    assert walk_parameters({**root, "$defs": {"a": {"type": "object"}}}, "p")


@pytest.mark.parametrize("root", [{"enum": [1]}, {"anyOf": [_INT, {"type": "object"}]}, {"$ref": "#/$defs/a"}])
def test_parameters_that_are_no_object_are_refused(root: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="must be an object"):
        walk_parameters({**root, "$defs": {"a": _INT}}, "p")
