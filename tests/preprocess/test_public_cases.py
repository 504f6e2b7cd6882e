"""What people hit elsewhere and reported in public, each with a minimal request of our own and the right answer."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from heptagram_backend.schema import checkable
from heptagram_backend.validate import InvalidOutputError, OutputValidator
from heptagram_wire import errors as codes
from tests.preprocess.asking import body, parse, refused, strict, tool
from tests.preprocess.oracle import Oracle

_ORACLE = Oracle()


def _enforced(schema: Any) -> Any:
    """The walked schema of the parameter ``x``."""
    parameters = parse(body(**strict(schema))).tools[0].enforced
    assert parameters is not None
    return parameters


def _accepts(schema: Any, value: Any) -> bool:
    return _ORACLE.accepts(_enforced(schema), {"x": value})


def test_item_counts_are_enforced() -> None:
    """https://github.com/vllm-project/vllm/issues/16880"""
    tags = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3}
    assert [_accepts(tags, ["a"] * count) for count in range(5)] == [False, False, True, True, False]


def test_a_pattern_without_anchors_is_searched_for() -> None:
    """https://github.com/containers/kubernetes-mcp-server/issues/758"""
    selector = {"type": "string", "pattern": "[a-z]+=[a-z0-9]+"}
    assert _accepts(selector, "app=web")
    assert _accepts(selector, "x, app=web!")
    assert not _accepts(selector, "app")


def test_types_inside_unions_are_enforced() -> None:
    """https://github.com/vllm-project/vllm/pull/43255"""
    wait = {
        "anyOf": [
            {"type": "object", "properties": {"type": {"const": "for"}, "minutes": {"type": "integer"}}},
            {"type": "object", "properties": {"type": {"const": "until"}, "at": {"type": "string"}}},
        ]
    }
    patches = {"allOf": [{"type": "array", "items": {"type": "object", "properties": {"op": {"enum": ["add"]}}}}]}
    assert _accepts(wait, {"type": "for", "minutes": 3})
    assert not _accepts(wait, '{"type": "for"}')
    assert not _accepts(wait, {"type": "until", "minutes": 3})
    assert _accepts(patches, [{"op": "add"}])
    assert not _accepts(patches, [{"op": "no"}])
    assert not _accepts({"anyOf": [{"type": "number"}]}, "2.5")


def test_nullable_types_as_lists_and_unions() -> None:
    """https://github.com/vllm-project/vllm/issues/11415"""
    count = {"type": ["integer", "null"], "minimum": 0}
    assert [_accepts(count, value) for value in (None, 3, -1, "null")] == [True, True, False, False]
    assert _accepts({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, None)


def test_recursion_through_definitions() -> None:
    """https://github.com/mlc-ai/xgrammar/issues/207"""
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"],
    }
    tree = {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    enforced = parse(body(tools=[tool(parameters=tree, strict=True)])).tools[0].enforced
    assert _ORACLE.accepts(enforced, {"x": {"name": "a", "children": [{"name": "b", "children": []}]}})
    assert not _ORACLE.accepts(enforced, {"x": {"name": "a", "children": [{}]}})


def test_dangling_pointers_and_pointers_into_the_body() -> None:
    """https://github.com/open-webui/computer/issues/87"""
    wire = refused(body(**strict({"$ref": "#/$defs/Filter"})))
    assert (wire.code, wire.param) == (codes.UNSUPPORTED_SCHEMA, "tools[0].function.parameters")
    assert "#/properties/x/$ref" in wire.message
    parameters = {
        "type": "object",
        "properties": {
            "status": {"enum": ["open", "done"]},
            "several": {"type": "array", "items": {"$ref": "#/properties/status"}},
        },
        "required": ["several"],
    }
    enforced = parse(body(tools=[tool(parameters=parameters, strict=True)])).tools[0].enforced
    assert _ORACLE.accepts(enforced, {"several": ["open", "done"]})
    assert not _ORACLE.accepts(enforced, {"several": ["shut"]})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"parameters": None},
        {"parameters": {}},
        {"parameters": {"type": "object"}},
        {"parameters": {"type": "object", "properties": {}}},
        {"parameters": {"type": "object", "properties": {}, "additionalProperties": False, "required": []}},
        {"parameters": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "none"}},
    ],
)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_goal"}}])
def test_tools_without_arguments(parameters: dict[str, Any], choice: Any) -> None:
    """https://github.com/theroyallab/tabbyAPI/issues/485"""
    enforced = parse(body(tools=[tool("get_goal", **parameters)], tool_choice=choice)).tools[0].enforced
    assert _ORACLE.accepts(enforced, {})
    assert not _ORACLE.accepts(enforced, {"a": 1})


def test_absent_items_and_the_empty_schema_mean_anything() -> None:
    """https://github.com/microsoft/vscode/issues/284536"""
    lists: list[Any] = [[1, "a", {"b": [None]}], []]
    for schema in ({"type": "array"}, {"type": "array", "items": {}}, {"type": "array", "items": True}, {}):
        assert all(_accepts(schema, value) for value in lists)
    others: list[Any] = ["a", 1, None, True, {"a": [{}]}]
    assert not any(_accepts({"type": "array"}, value) for value in others)
    assert all(_accepts({}, value) for value in others)


def test_long_texts_and_lists_stay_within_the_limits() -> None:
    """https://github.com/firecrawl/firecrawl/issues/4512"""
    text = {"type": "string", "maxLength": 10_000}
    level: dict[str, Any] = {"type": "object", "properties": {"text": text, "kind": {"enum": list("abcdefgh")}}}
    for _ in range(3):
        level = {"type": "object", "properties": {**level["properties"], "inner": level}}
    urls = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
    parameters = {"type": "object", "properties": {"prompt": text, "urls": urls, "opts": level}, "required": ["prompt"]}
    tools = [tool(f"t{number:02}", parameters=parameters, strict=True) for number in range(25)]
    assert all(one.enforced for one in parse(body(tools=tools, tool_choice="required")).tools)


def test_meta_schemas_are_not_fetched_and_remote_references_are_refused() -> None:
    """https://github.com/executeautomation/mcp-playwright/issues/109"""
    url = {"type": "string", "format": "uri"}
    for schema in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema"):
        parameters = {
            "type": "object",
            "properties": {"url": url},
            "$schema": schema,
            "$id": "urn:x",
            "definitions": {},
        }
        assert parse(body(tools=[tool(parameters=parameters, strict=True)])).tools[0].enforced


_REMOTE = {"$ref": "http://169.254.169.254/latest/schema.json"}


@pytest.mark.parametrize(
    "schema",
    [
        _REMOTE,
        {"$ref": "file:///etc/passwd"},
        {"$ref": "//a.example/x#/a"},
        {"type": "array", "items": _REMOTE},
        {"anyOf": [{"type": "string"}, {"properties": {"a": _REMOTE}}]},
        {"not": _REMOTE},
        {"if": {"properties": {"a": _REMOTE}}, "then": True},
        {"contains": _REMOTE},
        {"propertyNames": _REMOTE},
        {"patternProperties": {"a": _REMOTE, "b": {}}},
        {"dependentSchemas": {"a": _REMOTE}},
        {"oneOf": [True, {"items": _REMOTE}]},
    ],
)
@pytest.mark.parametrize("mode", ["refuse", "validate"])
def test_remote_references_are_refused_wherever_they_stand(
    schema: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/executeautomation/mcp-playwright/issues/109"""
    reached: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *target, **_: reached.append(target))
    wire = refused(body(**strict(schema), heptagram={"unenforced": mode}))
    assert (wire.code, wire.param) == (codes.UNSUPPORTED_SCHEMA, "tools[0].function.parameters")
    assert not reached


def test_a_remote_reference_in_a_branch_that_nothing_satisfies_is_never_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """https://github.com/executeautomation/mcp-playwright/issues/109"""
    reached: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *target, **_: reached.append(target))
    dead = {"allOf": [{"type": "string"}, {"type": "integer", "properties": {"a": _REMOTE}}]}
    schema = {"anyOf": [dead, {"type": "object", "properties": {"a": {"type": "integer"}}}]}
    assert _accepts(schema, {"a": 1})
    with pytest.raises(InvalidOutputError):
        OutputValidator({}, checkable(schema)).check_text('{"a": 1}')
    assert not reached


def test_parameters_named_like_the_wrapper() -> None:
    """https://github.com/vllm-project/vllm/issues/41240"""
    texts = {"type": "array", "items": {"type": "string"}}
    names = ("arguments", "input", "parameters", "name", "type", "properties", "required", "pattern", "$ref", "enum")
    parameters = {"type": "object", "properties": dict.fromkeys(names, texts), "required": list(names)}
    enforced = parse(body(tools=[tool(parameters=parameters, strict=True)])).tools[0].enforced
    value = {name: ["-v", "--name"] for name in names}
    assert _ORACLE.accepts(enforced, value)
    assert not _ORACLE.accepts(enforced, {"arguments": value})
    OutputValidator({"f": checkable(parameters)}).check_call("f", json.dumps(value))


def test_odd_property_names_are_written_as_they_are() -> None:
    """https://github.com/ai-dynamo/dynamo/pull/8671"""
    names = ["$filter", "first name", "a.b", "Notion-Version", 'na"me', "参数", "<x>", "\n", "back\\slash", ""]
    parameters = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names}
    enforced = parse(body(tools=[tool(parameters=parameters, strict=True)])).tools[0].enforced
    assert _ORACLE.accepts(enforced, dict.fromkeys(names, 1))


def test_digit_and_word_classes_are_ascii() -> None:
    """https://github.com/guidance-ai/llguidance/issues/158"""
    assert _accepts({"type": "string", "pattern": "^\\d$"}, "1")
    assert not _accepts({"type": "string", "pattern": "^\\d$"}, "১")
    assert _accepts({"type": "string", "pattern": "^\\w+$"}, "Lx_9")
    for classes, text in (("\\w", "é"), ("[\\w]", "é"), ("\\d", "٣"), ("[^\\W]", "é"), ("[^\\D]", "٣"), ("\\D", "٣")):
        assert not _accepts({"type": "string", "pattern": f"^{classes}$"}, text)
    assert not _accepts({"type": "string", "pattern": "^\\w+$"}, "Ł")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
@pytest.mark.parametrize("tools", [{}, {"tools": []}])
def test_a_demanded_call_without_tools(choice: Any, tools: dict[str, Any]) -> None:
    """https://github.com/vllm-project/vllm/pull/21052"""
    wire = refused(body(tool_choice=choice, stream=True, **tools))
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "tool_choice")


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_no_tools_and_no_demand_is_a_plain_chat(choice: str) -> None:
    """https://github.com/vllm-project/vllm/pull/21052"""
    assert not parse(body(tools=[], tool_choice=choice)).callable_tools


@pytest.mark.parametrize("named", [[], ["ghost"]])
def test_allowed_tools_that_allow_nothing(named: list[str]) -> None:
    """https://github.com/can1357/llm-git/issues/13"""
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool(name) for name in named]}}
    assert refused(body(tools=[tool("f")], tool_choice=choice)).code == codes.INVALID_VALUE


@pytest.mark.parametrize("role", ["user", "developer", "system"])
def test_null_content(role: str) -> None:
    """https://github.com/sgl-project/sglang/pull/39043"""
    wire = refused({"messages": [{"role": role, "content": None}]})
    assert (wire.code, wire.param) == (codes.MISSING, "messages[0].content")


def test_tools_of_one_name_in_two_namespaces_stay_apart() -> None:
    """https://github.com/local-inference-lab/vllm/pull/787"""
    tools = [tool("lookup") | {"namespace": "inventory"}, tool("lookup", namespace="billing")]
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "namespace": "billing", "arguments": "{}"}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]
    choice = {"type": "function", "function": {"name": "inventory::lookup"}}
    request = parse({"messages": messages, "tools": tools, "tool_choice": choice})
    assert [tool.name for tool in request.tools] == ["inventory::lookup", "billing::lookup"]
    assert request.messages[1].calls[0].name == "billing::lookup"
    assert [tool.name for tool in request.callable_tools] == ["inventory::lookup"]
    bare = {"type": "function", "function": {"name": "lookup"}}
    assert refused(body(tools=tools, tool_choice=bare)).param == "tool_choice"
    disagreeing = tool("f", namespace="y") | {"namespace": "x"}
    assert refused(body(tools=[disagreeing])).param == "tools[0].function.namespace"


def test_hostile_sizes_are_refused() -> None:
    """https://github.com/vllm-project/vllm/pull/25188"""
    enum = {"enum": [f"{number:040}" for number in range(100_000)]}
    assert refused(body(**strict(enum))).code == codes.REQUEST_TOO_LARGE
    branches = {"oneOf": [{"enum": [f"{one}-{two}" for two in range(1_000)]} for one in range(100)]}
    assert refused(body(**strict(branches))).code in codes.SIZE_CODES
    many = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(64)}}
    tools = [tool(f"t{number}", parameters=many, strict=True) for number in range(512)]
    assert refused(body(tools=tools)).code == codes.TOO_MANY_TOOLS


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 5_000 + "a" + ")" * 5_000,
        "(" * 100 + "a" + ")" * 100,
        "*",
        "^A{1000000}$",
        "^(A{1000}){1000}$",
        "^A{9999999999999999}$",
        "^.{0,65535}$",
        "^(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}$",
    ],
)
def test_hostile_patterns_are_refused(pattern: str) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/25308"""
    code = refused(body(**strict({"type": "string", "pattern": pattern}))).code
    assert code in codes.SIZE_CODES | {codes.UNSUPPORTED_SCHEMA}


def test_harmless_looking_patterns_stay_cheap() -> None:
    """https://github.com/ggml-org/llama.cpp/pull/25308"""
    for pattern in ("^(a+)+$", "^(a|aa)*b$"):
        assert _accepts({"type": "string", "pattern": pattern}, "aaa" + ("b" if "b" in pattern else ""))
    assert _accepts({"type": "string", "maxLength": 1_000_000_000}, "a" * 500)
