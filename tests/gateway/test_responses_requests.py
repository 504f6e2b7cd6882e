"""What becomes of each field of a Responses request."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.tool_param import ToolParam

from heptagram_gateway.errors import ApiError
from heptagram_gateway.responses.request import read_responses
from heptagram_gateway.responses.table import EXTRAS, RESPONSES

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}


def asked(**body: Any) -> dict[str, Any]:
    found = read_responses({"model": "chat", "input": "x", **body})
    assert found.fields.unknown == ()
    return found.request


def messages(*items: Any, **body: Any) -> list[Any]:
    found: list[Any] = asked(input=list(items), **body)["messages"]
    return found


def refused(**body: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        read_responses({"input": "x", **body})
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def test_the_whole_surface_of_the_openai_package_is_known() -> None:
    """Nothing that OpenAI has may count as a field that nobody knows."""
    known = {*RESPONSES.passed, *RESPONSES.checked}
    assert set(get_type_hints(ResponseCreateParamsBase)) <= known
    assert not set(RESPONSES.passed) & set(RESPONSES.checked)


def test_a_text() -> None:
    assert asked() == {"messages": [{"role": "user", "content": "x"}]}
    assert asked(instructions="be brief")["messages"][0] == {"role": "system", "content": "be brief"}


def test_parts_and_roles() -> None:
    assert messages(
        {"role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
    ) == [
        {"role": "developer", "content": [{"type": "text", "text": "d"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "refusal", "refusal": "no"}]},
    ]


def call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "f", "arguments": "{}"}


def chat_call(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_what_an_assistant_does_in_order_is_one_turn() -> None:
    assert messages(
        {"role": "user", "content": "x"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"role": "assistant", "content": "I look"},
        call("a"),
        call("b"),
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
    )[1:] == [
        {
            "role": "assistant",
            "reasoning_content": "why",
            "content": "I look",
            "tool_calls": [chat_call("a"), chat_call("b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
    ]


def test_another_order_is_another_turn() -> None:
    found = messages(call("a"), {"role": "assistant", "content": "then"}, {"role": "assistant", "content": "more"})
    assert [list(message) for message in found] == [["role", "tool_calls"], ["role", "content"], ["role", "content"]]


def test_reasoning() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "short"}]}
    secret = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gAAA"}
    assert messages(thought, secret, thought, {"role": "user", "content": "x"}) == [
        {"role": "assistant", "reasoning_content": "short\nshort", "content": ""},
        {"role": "user", "content": "x"},
    ]


def test_tools() -> None:
    found = read_responses({"input": "x", "tools": [{**FUNCTION, "description": "d"}], "tool_choice": "required"})
    assert found.request["tools"] == [{**CHAT_FUNCTION, "function": {**CHAT_FUNCTION["function"], "description": "d"}}]  # type: ignore[dict-item]
    assert found.request["tool_choice"] == "required"


def test_namespaces() -> None:
    space = {"type": "namespace", "name": "crm", "description": "customers", "tools": [FUNCTION]}
    found = read_responses({"input": "x", "tools": [FUNCTION, space]})
    assert found.request["tools"][1] == {
        **CHAT_FUNCTION,
        "namespace": {"name": "crm", "description": "customers"},
    }
    assert found.tools.names == {"crm::f": ("crm", "f")}
    past = {**call("a"), "namespace": "crm"}
    assert messages(past)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}", "namespace": "crm"}


@pytest.mark.parametrize(
    "choice",
    [
        "none",
        {"type": "function", "name": "f"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_choices_are_the_backends(choice: Any) -> None:
    assert asked(tool_choice=choice)["tool_choice"] == choice


def test_other_names() -> None:
    assert asked(
        max_output_tokens=5,
        reasoning={"effort": "high", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "n", "schema": {"a": None}, "strict": True},
            "verbosity": "low",
        },
    ) == {
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 5,
        "reasoning_effort": "high",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": None}, "strict": True}},
    }
    assert asked(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}


SAME: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False} | {
    name: {"a": 1} for name in EXTRAS
}


@pytest.mark.parametrize("field", SAME)
def test_fields_that_the_backend_decides(field: str) -> None:
    assert asked(**{field: SAME[field]})[field] == SAME[field]


@pytest.mark.parametrize("field", sorted({*RESPONSES.checked, *RESPONSES.passed} - {"input"}))
def test_null_is_absent(field: str) -> None:
    assert asked(**{field: None}) == asked()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("store", True),
        ("store", False),
        ("metadata", {"a": "b"}),
        ("user", "u"),
        ("truncation", "disabled"),
        ("background", False),
        ("include", ["reasoning.encrypted_content", "web_search_call.action.sources"]),
        ("max_tool_calls", 3),
        ("prompt_cache_key", "k"),
        ("service_tier", "auto"),
    ],
)
def test_harmless_fields_end_here(field: str, value: Any) -> None:
    assert asked(**{field: value}) == asked()


def test_log_probabilities() -> None:
    """``include`` asks for them, and so does a number of likeliest tokens."""

    def wanted(**body: Any) -> dict[str, Any]:
        return {key: value for key, value in asked(**body).items() if key != "messages"}

    included = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert wanted(include=included) == {"logprobs": True}
    assert wanted(include=included, top_logprobs=0) == {"logprobs": True, "top_logprobs": 0}
    assert wanted(include=included, top_logprobs=2) == wanted(top_logprobs=2) == {"logprobs": True, "top_logprobs": 2}
    assert wanted(top_logprobs=0) == {"top_logprobs": 0}
    assert wanted(top_logprobs=None, include=None) == wanted(include=[]) == {}


@pytest.mark.parametrize(
    ("field", "value", "param", "code"),
    [
        ("previous_response_id", "resp_1", "previous_response_id", "unsupported"),
        ("conversation", "conv_1", "conversation", "unsupported"),
        ("conversation", {"id": "c"}, "conversation", "unsupported"),
        ("background", True, "background", "unsupported"),
        ("prompt", {"id": "p"}, "prompt", "unsupported"),
        ("truncation", "auto", "truncation", "unsupported"),
        ("store", "yes", "store", "invalid_type"),
        ("include", ["moon"], "include[0]", "invalid_value"),
        ("include", "moon", "include", "invalid_type"),
        ("stream_options", {"include_obfuscation": True}, "stream_options.include_obfuscation", "unsupported"),
        ("reasoning", {"summary": "detailed"}, "reasoning.summary", "unsupported"),
        ("reasoning", "high", "reasoning", "invalid_type"),
        ("text", "json", "text", "invalid_type"),
        ("text", {"format": "json"}, "text.format", "invalid_type"),
        ("text", {"format": {"schema": {}}}, "text.format.type", "missing"),
        ("text", {"format": {"type": "json_schema", "schema": {}}}, "text.format.name", "missing"),
        ("tools", {}, "tools", "invalid_type"),
        ("tools", ["f"], "tools[0]", "invalid_type"),
        ("tools", [{"name": "f"}], "tools[0].type", "missing"),
        ("tools", [{"type": 5}], "tools[0].type", "invalid_type"),
        ("tools", [{**FUNCTION, "defer_loading": True}], "tools[0].defer_loading", "unsupported"),
        ("tools", [{**FUNCTION, "async": True}], "tools[0].async", "unsupported"),
        ("tools", [{**FUNCTION, "output_schema": {}}], "tools[0].output_schema", "unsupported"),
        ("tools", [{**FUNCTION, "allowed_callers": ["programmatic"]}], "tools[0].allowed_callers", "unsupported"),
        ("tools", [{"type": "namespace", "tools": []}], "tools[0].name", "missing"),
        ("tools", [{"type": "namespace", "name": 5, "tools": []}], "tools[0].name", "invalid_type"),
        ("tools", [{"type": "namespace", "name": "n"}], "tools[0].tools", "missing"),
        (
            "tools",
            [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}],
            "tools[0].tools[0].type",
            "unsupported",
        ),
        ("input", None, "input", "missing"),
        ("input", 5, "input", "invalid_type"),
        ("input", ["x"], "input[0]", "invalid_type"),
        ("input", [{}], "input[0].role", "missing"),
        ("input", [{"type": 5}], "input[0].type", "invalid_type"),
        ("input", [{"role": "user"}], "input[0].content", "missing"),
        ("input", [{"type": "item_reference", "id": "x"}], "input[0].type", "unsupported"),
        ("input", [{"type": "function_call", "name": "f"}], "input[0].call_id", "missing"),
        ("input", [{"type": "function_call_output", "call_id": "f"}], "input[0].output", "missing"),
        ("input", [{"type": "reasoning", "content": [{"text": 5}]}], "input[0].content[0].text", "invalid_type"),
        ("input", [{"type": "reasoning", "summary": 5}], "input[0].summary", "invalid_type"),
        (
            "input",
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            "input[0].content[0].type",
            "unsupported",
        ),
    ],
)
def test_what_cannot_be_honoured_is_named(field: str, value: Any, param: str, code: str) -> None:
    assert refused(**{field: value}) == (param, code)


def test_every_tool_that_openai_runs_is_refused_by_name() -> None:
    kinds = {str(get_args(hint)[0]) for hint in _kinds()} - {"function", "namespace"}
    assert {"web_search", "file_search", "mcp", "code_interpreter", "custom"} <= kinds
    for kind in kinds:
        with pytest.raises(ApiError, match=kind) as caught:
            read_responses({"input": "x", "tools": [{"type": kind, "anything": 1}]})
        assert (caught.value.param, caught.value.code) == ("tools[0].type", "unsupported")


def _kinds() -> list[Any]:
    found = []
    for tool in get_args(ToolParam):
        hint = get_type_hints(tool)["type"]
        while get_args(hint) and not isinstance(get_args(hint)[0], str):
            hint = get_args(hint)[0]
        found.append(hint)
    return found


@pytest.mark.parametrize(
    ("chat", "own"),
    [
        ("messages", "input"),
        ("messages[0].content", "instructions"),
        ("messages[1].role", "input[0].role"),
        ("messages[1].content[0].text", "input[0].content[0].text"),
        ("messages[2]", "input[1]"),
        ("messages[2].reasoning_content", "input[1].content"),
        ("messages[2].tool_calls[0].id", "input[2].call_id"),
        ("messages[2].tool_calls[0].function.name", "input[2].name"),
        ("messages[2].tool_calls[1].function.arguments", "input[3].arguments"),
        ("messages[3].tool_call_id", "input[4].call_id"),
        ("messages[3].content", "input[4].output"),
        ("tools[0].function.parameters", "tools[0].parameters"),
        ("tools[1].function.name", "tools[1].tools[0].name"),
        ("tools[1].namespace.name", "tools[1].name"),
        ("tools[10]", "tools[10]"),
        ("tool_choice.name", "tool_choice.name"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("max_tokens", "max_output_tokens"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("heptagram.deadline_ms", "heptagram.deadline_ms"),
    ],
)
def test_errors_of_the_backend_name_the_callers_fields(chat: str, own: str) -> None:
    asked = read_responses(
        {
            "instructions": "i",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "why"}]},
                call("a"),
                call("b"),
                {"type": "function_call_output", "call_id": "a", "output": "1"},
            ],
            "tools": [FUNCTION, {"type": "namespace", "name": "n", "tools": [FUNCTION]}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        }
    )
    assert asked.places.own(chat) == own
    with pytest.raises(ApiError) as caught, asked.places.told():
        raise ApiError(400, "m", "c", chat, {"a": "b"})
    assert (caught.value.param, caught.value.headers) == (own, {"a": "b"})
