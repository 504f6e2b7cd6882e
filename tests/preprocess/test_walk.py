"""Keyword by keyword: what the walker writes, and what it refuses at which place."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import Budget, SchemaLimits, walk, walk_parameters
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from tests.preprocess.oracle import Oracle

_INT: dict[str, Any] = {"type": "integer"}
_STR: dict[str, Any] = {"type": "string"}
_CLOSED = {"type": "object", "properties": {"a": _INT}, "required": [], "additionalProperties": False}
_NONE = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_US = {"properties": {"c": {"const": "US"}}, "required": ["c"]}
_ADDRESS = {"type": "object", "properties": {"c": {"enum": ["US", "NL"]}, "z": _STR}}


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
        ({"type": "array", "prefixItems": [_INT]}, {"type": "array", "prefixItems": [_INT], "items": {}}),
        (
            {"type": "array", "prefixItems": [_INT], "unevaluatedItems": False},
            {"type": "array", "prefixItems": [_INT], "items": False},
        ),
        (
            {"prefixItems": [_INT], "unevaluatedItems": _STR},
            {"type": "array", "prefixItems": [_INT], "items": _STR},
        ),
        ({"unevaluatedItems": _STR}, {"type": "array", "items": _STR}),
        (
            {"anyOf": [{"prefixItems": [_INT]}, {"items": _INT}], "unevaluatedItems": _STR},
            {
                "anyOf": [
                    {"type": "array", "prefixItems": [_INT], "items": _STR},
                    {"type": "array", "items": _INT},
                ]
            },
        ),
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
        ({"anyOf": [_INT, _STR], "oneOf": [_INT, {"type": "null"}]}, _INT),
        ({"allOf": [{"anyOf": [_INT, _STR]}, {"anyOf": [_INT, {"type": "null"}]}]}, _INT),
        ({"allOf": [{"const": 1}, {"const": 1.0}]}, {"const": 1}),
        ({"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}, {"type": "integer", "multipleOf": 12}),
        ({"enum": ["aa", "b"], "minLength": 2}, {"const": "aa"}),
        ({"enum": ["aa", "b", 3], "pattern": "^a*$"}, {"enum": ["aa", 3]}),
        ({"type": "integer", "enum": [1, 5, 9], "minimum": 2, "exclusiveMaximum": 9}, {"const": 5}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": _INT}}, {"$ref": "#/$defs/d0", "$defs": {"d0": _INT}}),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": _INT}}, {"$ref": "#/$defs/d0", "$defs": {"d0": _INT}}),
        ({"$ref": "#/$defs/a", "minimum": 2, "$defs": {"a": _INT}}, {"type": "integer", "minimum": 2}),
        ({"allOf": [{"type": "object", "properties": {"a": _INT}}, {"properties": {"a": True}}]}, _CLOSED),
    ],
)
def test_written(schema: Any, expected: Any) -> None:
    assert walk(schema, "p") == expected


def _closed(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"not": {}}, _INT]}, _INT),
        ({"type": ["integer", "string"], "not": {"type": "string"}}, _INT),
        ({"not": {"type": ["object", "array", "number", "boolean", "null"]}}, _STR),
        ({"type": ["null", "integer"], "not": {"const": None}}, _INT),
        ({"type": "boolean", "not": {"enum": [False, 3]}}, {"const": True}),
        ({"enum": ["a", "b", "c"], "not": {"enum": ["a", "c"]}}, {"const": "b"}),
        ({"type": "integer", "not": {"const": "a"}}, _INT),
        ({"type": "integer", "not": {"minimum": 3}}, {"type": "integer", "maximum": 2}),
        ({"type": "array", "not": {"maxItems": 0}}, {"type": "array", "items": {}, "minItems": 1}),
        ({"properties": {"a": _INT, "b": _INT}, "not": {"required": ["b"]}}, _CLOSED),
        (
            {**_ADDRESS, "if": _US, "then": {"required": ["z"]}},
            {
                "anyOf": [
                    _closed(["c", "z"], c={"const": "US"}, z=_STR),
                    _closed(["c"], c={"const": "NL"}, z=_STR),
                    _closed(z=_STR),
                ]
            },
        ),
        ({**_ADDRESS, "if": _US, "then": False, "else": False}, None),
        ({"type": "integer", "if": {}}, _INT),
        ({"type": "integer", "then": False, "else": False}, _INT),
        (
            {"properties": {"a": _INT, "b": _INT}, "dependentRequired": {"a": ["b"]}},
            {"anyOf": [_closed(b=_INT), _closed(["a", "b"], a=_INT, b=_INT)]},
        ),
        (
            {"properties": {"a": _INT, "b": _INT}, "dependentSchemas": {"a": {"properties": {"b": {"minimum": 1}}}}},
            {"anyOf": [_closed(b=_INT), _closed(["a"], a=_INT, b={"type": "integer", "minimum": 1})]},
        ),
        ({"properties": {"a": _INT}, "dependentRequired": {"a": []}}, _CLOSED),
        ({"properties": {"a": {}}, "patternProperties": {"^a": _INT, "b": _STR}}, _CLOSED),
        ({"required": ["a"], "patternProperties": {"^a": _INT}, "additionalProperties": False}, _closed(["a"], a=_INT)),
        ({"properties": {"a": _INT, "bb": _INT}, "propertyNames": {"maxLength": 1}}, _CLOSED),
        ({"properties": {"a": _INT, "b": _INT}, "propertyNames": {"enum": ["a", "z"]}}, _CLOSED),
        ({"propertyNames": {"enum": ["a"]}, "additionalProperties": _INT}, _CLOSED),
        ({"type": "object", "propertyNames": False}, _NONE),
        (
            {"type": "array", "items": {"enum": ["a", 1]}, "uniqueItems": True, "minItems": 1},
            {"enum": [["a"], [1], ["a", 1], [1, "a"]]},
        ),
        ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3}, None),
    ],
)
def test_conditions_and_names_are_written_as_what_they_mean(schema: Any, expected: Any) -> None:
    if expected is None:
        assert "no value satisfies the schema" in _refused(schema).message
    else:
        assert walk(schema, "p") == expected


@pytest.mark.parametrize("keywords", [{"patternProperties": {"^x-": _INT}}, {"propertyNames": {"pattern": "^x-"}}])
def test_free_names_are_held_to_a_pattern(keywords: dict[str, Any]) -> None:
    walked = walk({"type": "object", "additionalProperties": _INT, **keywords}, "p")
    assert walked.keys() == {"type", "propertyNames", "additionalProperties"}
    oracle = Oracle()
    assert all(oracle.accepts(walked, value) for value in ({}, {"x-a": 1}, {"x-": 1, 'x-é"': 2}))
    assert not any(oracle.accepts(walked, value) for value in ({"a": 1}, {"x-a": "1"}, {"ax-": 1}))


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"typ": "object"}, "#/typ"),
        ({"properties": {"a/b": {"not": {"type": "integer"}}}}, "#/properties/a~1b/not"),
        ({"type": "string", "not": {"pattern": "a"}}, "#/not"),
        ({"type": "string", "not": {"const": "a"}}, "#/not"),
        ({"if": {"pattern": "a"}, "then": {}}, "#/if"),
        ({"dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False}, "#/dependentRequired"),
        ({"dependencies": {"a": ["b"]}}, "#/dependencies"),
        ({"contains": {}}, "#/contains"),
        ({"$dynamicRef": "#a"}, "#/$dynamicRef"),
        ({"$ref": "other.json"}, "#/$ref"),
        ({"$ref": "#anchor"}, "#/$ref"),
        ({"$ref": "#/$defs/none"}, "#/$ref"),
        ({"$ref": "#/default", "default": {}}, "#/$ref"),
        ({"properties": {"a": {"$id": "x"}}}, "#/properties/a/$id"),
        ({"type": "object", "patternProperties": {"^a": {}, "^b": _INT}}, "#/patternProperties"),
        ({"properties": {"é": {}}, "patternProperties": {"^\\w": _INT}}, "#/patternProperties"),
        ({"type": "object", "propertyNames": {"anyOf": [{"pattern": "a"}, {"maxLength": 2}]}}, "#/propertyNames"),
        ({"type": "object", "propertyNames": {"pattern": "a"}, "patternProperties": {"b": {}}}, "#/propertyNames"),
        ({"type": "object", "minProperties": 2}, "#/minProperties"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"type": "array", "items": {"enum": list(range(9))}, "uniqueItems": True}, "#/uniqueItems"),
        ({"type": "string", "format": "regex"}, "#/format"),
        ({"type": "string", "format": "date", "pattern": "a"}, "#/pattern"),
        ({"type": "string", "pattern": "^ab|c$", "minLength": 2}, "#"),
        ({"enum": ["aa", "b"], "format": "date"}, "#/format"),
        ({"enum": ["a", "é"], "pattern": "\\w"}, "#/pattern"),
        ({"enum": [[1], "b"], "uniqueItems": True}, "#/uniqueItems"),
        ({"const": 2**63}, "#"),
        ({"type": "integer", "multipleOf": 3, "minimum": 0}, "#/multipleOf"),
        ({"type": "integer", "multipleOf": 2_048}, "#/multipleOf"),
        ({"type": "integer", "multipleOf": 101}, "#/multipleOf"),
        ({"type": "number", "multipleOf": 0.01}, "#/multipleOf"),
        ({"oneOf": [_INT, {"type": "number"}]}, "#/oneOf"),
        ({"oneOf": [{"properties": {"a": _INT}}, {"properties": {"b": _INT}}]}, "#/oneOf"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "#/pattern"),
        ({"allOf": [{"unevaluatedProperties": False}, {"properties": {"a": {}}}]}, "#/allOf/0/unevaluatedProperties"),
        ({"anyOf": [{"$ref": "#"}, _INT]}, "#"),
        ({"$ref": "#"}, "#"),
        ({"anyOf": [{"$ref": "#/$defs/a"}, _INT], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "#/$defs/a"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"not": {"allOf": [{"$ref": "#/$defs/a"}]}}}}, "#/$defs/a"),
        ({"oneOf": [{"if": {"$ref": "#/oneOf/0"}}, _INT]}, "#/oneOf/0"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "#"),
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
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "string", "enum": [1, 2]},
        {"allOf": [_INT, _STR]},
        {"type": "object", "properties": {"a": {}}, "minProperties": 2},
        {"type": "object", "minProperties": 1, "maxProperties": 0},
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
        {"allOf": [{"enum": list(range(1_500))}, {"enum": list(range(1_500))}]},
        {"allOf": [{"not": {"enum": list(range(1_500))}}, {"not": {"enum": list(range(1_500))}}]},
        {"properties": {"a" * 90: {}}, "patternProperties": {"(((a?){60}){60}){5}": {}}},
        {"enum": ["a" * 90], "pattern": "(((a?){60}){60}){5}"},
    ],
)
def test_size_is_bounded(schema: Any) -> None:
    assert _refused(schema).code in codes.SIZE_CODES


def test_many_conditions_are_refused_or_checked_but_never_multiplied_out() -> None:
    names = range(20)
    whens = [
        {"if": {"properties": {f"a{n}": {"const": 1}}, "required": [f"a{n}"]}, "then": {"required": [f"b{n}"]}}
        for n in names
    ]
    properties = {f"a{n}": {"enum": [1, 2]} for n in names} | {f"b{n}": _INT for n in names}
    schema = {"type": "object", "properties": properties, "allOf": whens}
    assert "so many unions or conditions" in _refused(schema).message
    assert len(walk(schema, "p", unenforced="validate")["anyOf"]) == 27
    assert len(walk({**schema, "allOf": whens[:3]}, "p")["anyOf"]) == 27


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": _INT}, "if": {"properties": {"a": {"const": 1}}}}, "#/if/properties/a/not"),
        (
            {"if": {"required": ["a"]}, "then": {"properties": {"b": {"multipleOf": 0.1}}}},
            "#/then/properties/b/multipleOf",
        ),
        (
            {"allOf": [{"if": {"required": ["a"]}, "else": {"properties": {"b": {"typ": 1}}}}]},
            "#/allOf/0/else/properties/b/typ",
        ),
        (
            {"dependentSchemas": {"a": {"properties": {"b": {"uniqueItems": True}}}}},
            "#/dependentSchemas/a/properties/b/uniqueItems",
        ),
        ({"not": {"not": {"properties": {"b": {"uniqueItems": True}}}}}, "#/not/properties/b/uniqueItems"),
    ],
)
def test_refusals_inside_conditions_name_the_caller_s_place(schema: Any, pointer: str) -> None:
    assert _refused(schema).message.startswith(f"at {pointer}: ")


@pytest.mark.parametrize("levels", [400, 100_000])
@pytest.mark.parametrize("key", ["items", "default", "const", "not", "anyOf"])
def test_what_is_nested_too_deep_to_be_read_is_refused(levels: int, key: str) -> None:
    deep: Any = _INT
    for _ in range(levels):
        deep = {key: [deep] if key == "anyOf" else deep}
    assert _refused(deep).code == codes.SCHEMA_TOO_DEEP
    with pytest.raises(RequestError, match="nested deeper"):
        walk_parameters(deep, "p")


@pytest.mark.parametrize("number", [inf, -inf, nan])
@pytest.mark.parametrize("key", ["enum", "const", "minimum", "multipleOf", "maxLength", "default"])
def test_numbers_that_json_cannot_write_are_refused(number: float, key: str) -> None:
    wire = _refused({"properties": {"a": {key: [number] if key == "enum" else number}}})
    assert wire.code == codes.INVALID_VALUE
    assert wire.message.startswith(f"at #/properties/a/{key}")


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
