"""Every field of a request: what is accepted, and which code and place a wrong value meets."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.conversation import Message, PastCall, ToolChoice
from heptagram_wire import errors as codes
from tests.preprocess.asking import MODEL, body, parse, refused, tool

_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_USER = {"role": "user", "content": "hi"}


def _after(*messages: dict[str, Any]) -> dict[str, Any]:
    return body(messages=[_USER, *messages])


@pytest.mark.parametrize(
    "changes",
    [
        {"model": MODEL},
        {"model": "chat"},
        {"model": None},
        {"n": 1},
        {"max_tokens": 2**62},
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"stop": "x"},
        {"stop": ["x", "y"]},
        {"stop": []},
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"stream": False, "stream_options": {"include_usage": True}},
        {"modalities": ["text"], "reasoning_effort": None, "verbosity": "medium"},
        {"chat_template_kwargs": {"enable_thinking": False, "level": "low"}},
        {"heptagram": {"deadline_ms": 1, "num_speculative_tokens": 0, "drafts": "none", "tool_markup": "free"}},
        {"heptagram": {"unenforced": None}, "return_token_ids": True, "priority": -3, "ignore_eos": True},
        {"tools": [], "tool_choice": "auto"},
        {"tools": None, "tool_choice": None, "response_format": None, "functions": None},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string"}}}},
        {"tools": [tool("inventory::look-up_1.x")], "parallel_tool_calls": False},
    ],
)
def test_accepted(changes: dict[str, Any]) -> None:
    assert parse(body(**changes)).model == MODEL


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"model": "other"}, codes.MODEL_NOT_FOUND, "model"),
        ({"model": 3}, codes.INVALID_TYPE, "model"),
        ({"tempature": 0}, codes.UNKNOWN_FIELD, "tempature"),
        ({"a b: c": 0}, codes.UNKNOWN_FIELD, None),
        ({"guided_json": {}}, codes.UNKNOWN_FIELD, "guided_json"),
        ({"n": 17}, codes.TOO_MANY_CHOICES, "n"),
        ({"n": 0}, codes.INVALID_VALUE, "n"),
        ({"n": 1_000_000}, codes.TOO_MANY_CHOICES, "n"),
        ({"max_tokens": 0}, codes.INVALID_VALUE, "max_tokens"),
        ({"max_tokens": -1}, codes.INVALID_VALUE, "max_tokens"),
        ({"max_tokens": 1.5}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": "10"}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": True}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": 2**63}, codes.INVALID_VALUE, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, codes.INVALID_VALUE, "max_tokens"),
        ({"stop": ""}, codes.INVALID_VALUE, "stop"),
        ({"stop": 5}, codes.INVALID_TYPE, "stop"),
        ({"stop": ["x", 1]}, codes.INVALID_TYPE, "stop[1]"),
        ({"stop": ["x"] * 17}, codes.TOO_LARGE, "stop"),
        ({"stop": ["x" * 257]}, codes.INVALID_VALUE, "stop[0]"),
        ({"stop_token_ids": [1, -1]}, codes.INVALID_VALUE, "stop_token_ids[1]"),
        ({"stop_token_ids": [True]}, codes.INVALID_TYPE, "stop_token_ids[0]"),
        ({"ignore_eos": 1}, codes.INVALID_TYPE, "ignore_eos"),
        ({"stream": "true"}, codes.INVALID_TYPE, "stream"),
        ({"stream_options": {"x": 1}}, codes.UNKNOWN_FIELD, "stream_options.x"),
        ({"priority": 2**40}, codes.INVALID_VALUE, "priority"),
        ({"modalities": ["audio"]}, codes.UNSUPPORTED, "modalities"),
        ({"audio": {}}, codes.UNSUPPORTED, "audio"),
        ({"reasoning_effort": "high"}, codes.UNSUPPORTED, "reasoning_effort"),
        ({"functions": []}, codes.UNSUPPORTED, "functions"),
        ({"chat_template_kwargs": {"messages": True}}, codes.INVALID_VALUE, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"x": "<|im_end|>"}}, codes.INVALID_VALUE, "chat_template_kwargs.x"),
        ({"chat_template_kwargs": {"x": []}}, codes.INVALID_VALUE, "chat_template_kwargs.x"),
        ({"heptagram": []}, codes.INVALID_TYPE, "heptagram"),
        ({"heptagram": {"deadline": 5}}, codes.UNKNOWN_FIELD, "heptagram.deadline"),
        ({"heptagram": {"deadline_ms": 0}}, codes.INVALID_VALUE, "heptagram.deadline_ms"),
        ({"heptagram": {"num_speculative_tokens": 8}}, codes.INVALID_VALUE, "heptagram.num_speculative_tokens"),
        ({"heptagram": {"drafts": "scripted"}}, codes.INVALID_VALUE, "heptagram.drafts"),
        ({"heptagram": {"tool_markup": "x"}}, codes.INVALID_VALUE, "heptagram.tool_markup"),
        ({"heptagram": {"unenforced": ["x"]}}, codes.INVALID_TYPE, "heptagram.unenforced"),
        ({"heptagram": {"unenforced": "ignore"}}, codes.INVALID_VALUE, "heptagram.unenforced"),
        ({"parallel_tool_calls": "no"}, codes.INVALID_TYPE, "parallel_tool_calls"),
        ({"tools": {}}, codes.INVALID_TYPE, "tools"),
        ({"tools": [{}]}, codes.MISSING, "tools[0].type"),
        ({"tools": [{"type": "custom"}]}, codes.UNSUPPORTED, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, codes.MISSING, "tools[0].function"),
        ({"tools": [tool("")]}, codes.INVALID_VALUE, "tools[0].function.name"),
        ({"tools": [tool("a b")]}, codes.INVALID_VALUE, "tools[0].function.name"),
        ({"tools": [tool("x" * 65)]}, codes.TOO_LARGE, "tools[0].function.name"),
        ({"tools": [tool("f"), tool("f")]}, codes.INVALID_VALUE, "tools[1].function.name"),
        ({"tools": [tool(description=1)]}, codes.INVALID_TYPE, "tools[0].function.description"),
        ({"tools": [tool(strict="yes")]}, codes.INVALID_TYPE, "tools[0].function.strict"),
        ({"tools": [tool(parameters=[])]}, codes.INVALID_TYPE, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "string"})]}, codes.INVALID_VALUE, "tools[0].function.parameters"),
        ({"tools": [tool(params={})]}, codes.UNKNOWN_FIELD, "tools[0].function.params"),
        ({"tools": [tool(str(i)) for i in range(129)]}, codes.TOO_MANY_TOOLS, "tools"),
        ({"tool_choice": "any"}, codes.INVALID_VALUE, "tool_choice"),
        ({"tool_choice": {}}, codes.MISSING, "tool_choice.type"),
        ({"tool_choice": {"type": "custom"}}, codes.UNSUPPORTED, "tool_choice.type"),
        ({"response_format": {}}, codes.MISSING, "response_format.type"),
        ({"response_format": {"type": "xml"}}, codes.INVALID_VALUE, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, codes.MISSING, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            codes.MISSING,
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            codes.UNSUPPORTED_SCHEMA,
            "response_format.json_schema.schema",
        ),
    ],
)
def test_refused(changes: dict[str, Any], code: str, param: str | None) -> None:
    wire = refused(body(**changes))
    assert (wire.code, wire.param) == (code, param)


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        (None, codes.MISSING, "messages"),
        ("hi", codes.INVALID_TYPE, "messages"),
        ([], codes.INVALID_VALUE, "messages"),
        (["hi"], codes.INVALID_TYPE, "messages[0]"),
        ([{"content": "x"}], codes.MISSING, "messages[0].role"),
        ([{"role": "User", "content": "x"}], codes.INVALID_VALUE, "messages[0].role"),
        ([{"role": "function", "content": "x"}], codes.INVALID_VALUE, "messages[0].role"),
        ([{"role": "user"}], codes.MISSING, "messages[0].content"),
        ([{"role": "user", "content": 5}], codes.INVALID_TYPE, "messages[0].content"),
        ([{"role": "user", "content": []}], codes.MISSING, "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], codes.UNSUPPORTED, "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], codes.MISSING, "messages[0].content[0].text"),
        ([{"role": "user", "content": "x", "tool_calls": []}], codes.UNKNOWN_FIELD, "messages[0].tool_calls"),
        ([{"role": "tool", "content": "x"}], codes.MISSING, "messages[0].tool_call_id"),
        ([{"role": "tool", "content": "x", "tool_call_id": 1}], codes.INVALID_TYPE, "messages[0].tool_call_id"),
        ([{"role": "assistant", "content": None}], codes.MISSING, "messages[0].content"),
        ([{"role": "assistant", "tool_calls": []}], codes.MISSING, "messages[0].content"),
        ([{"role": "assistant", "tool_calls": [{}]}], codes.MISSING, "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "content": "x", "audio": {"id": "a"}}], codes.UNSUPPORTED, "messages[0].audio"),
    ],
)
def test_refused_messages(messages: Any, code: str, param: str) -> None:
    wire = refused({"messages": messages})
    assert (wire.code, wire.param) == (code, param)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("", "{}"),
        (None, "{}"),
        ("null", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ({"a": "é"}, '{"a": "é"}'),
        ('{"city": "Os', '{"city": "Os'),
        ("{city: Oslo}", "{city: Oslo}"),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
    ],
)
def test_arguments_of_past_calls(arguments: Any, kept: str) -> None:
    call = {**_CALL, "function": {"name": "f", "arguments": arguments}}
    request = parse(_after({"role": "assistant", "tool_calls": [call]}))
    assert request.messages[1] == Message("assistant", None, calls=(PastCall("c", "f", kept),))


def test_wrong_arguments_are_refused_with_their_path() -> None:
    call = {**_CALL, "function": {"name": "f", "arguments": 5}}
    wire = refused(_after({"role": "assistant", "tool_calls": [call]}))
    assert (wire.code, wire.param) == (codes.INVALID_TYPE, "messages[1].tool_calls[0].function.arguments")


def test_what_an_sdk_dumps_is_tolerated() -> None:
    dumped = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "audio": None,
        "annotations": [],
        "function_call": None,
        "reasoning_content": "",
        "tool_calls": [{**_CALL, "index": 0}],
    }
    request = parse(_after(dumped, {"role": "tool", "tool_call_id": "c", "content": None, "name": "f"}))
    assert request.messages[1].calls[0].name == "f"
    assert request.messages[1].reasoning is None
    assert request.messages[2].content == ""


def test_parts_are_joined_and_reasoning_is_kept() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(_after({"role": "assistant", "content": parts, "reasoning": "why"}, _USER))
    assert request.messages[1] == Message("assistant", "a\nb", reasoning="why", parts=("a", "b"))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", ToolChoice("required")),
        ("none", ToolChoice("none")),
        ({"type": "function", "function": {"name": "a"}}, ToolChoice("required", ("a",))),
        ({"type": "function", "name": "a"}, ToolChoice("required", ("a",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("b"), tool("b")]}},
            ToolChoice("auto", ("b",)),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]},
            ToolChoice("required", ("a",)),
        ),
    ],
)
def test_forms_of_tool_choice(choice: Any, expected: ToolChoice) -> None:
    request = parse(body(tools=[tool("a"), tool("b")], tool_choice=choice))
    assert request.tool_choice == expected
    assert [one.name for one in request.callable_tools] == list(expected.names or ("a", "b"))


def test_a_named_tool_that_is_not_there_is_told_with_those_that_are() -> None:
    choice = {"type": "function", "function": {"name": "ghost"}}
    wire = refused(body(tools=[tool("a"), tool("b")], tool_choice=choice))
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "tool_choice")
    assert "a, b" in wire.message


_LOOSE = {"type": "object", "properties": {"x": {"not": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("choice", "strict", "enforced"),
    [
        ("required", None, True),
        ("required", True, True),
        ("required", False, False),
        ("auto", None, False),
        ("auto", True, True),
        ("none", True, False),
        ({"type": "function", "name": "other"}, True, False),
    ],
)
def test_which_schemas_are_enforced(choice: Any, strict: bool | None, enforced: bool) -> None:
    good = parse(body(tools=[tool("f", strict=strict), tool("other")], tool_choice=choice))
    assert (good.tools[0].enforced is not None) is enforced
    bad = body(tools=[tool("f", parameters=_LOOSE, strict=strict), tool("other")], tool_choice=choice)
    if enforced:
        wire = refused(bad)
        assert (wire.code, wire.param) == (codes.UNSUPPORTED_SCHEMA, "tools[0].function.parameters")
        assert "at #/properties/x/not:" in wire.message
    else:
        assert parse(bad).tools[0].parameters == _LOOSE
