"""What becomes of each field of a Messages request."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import ToolUnionParam
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaParams
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase

from heptagram_gateway.errors import ApiError
from heptagram_gateway.messages.request import read_counted, read_messages
from heptagram_gateway.messages.table import EXTRAS, MESSAGES

USER = [{"role": "user", "content": "x"}]
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def asked(**body: Any) -> dict[str, Any]:
    found = read_messages({"model": "chat", "max_tokens": 9, "messages": USER, **body})
    assert found.fields.unknown == ()
    return found.request


def refused(**body: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        read_messages({"max_tokens": 9, "messages": USER, **body})
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def test_the_whole_surface_of_the_anthropic_package_is_known() -> None:
    known = {*MESSAGES.passed, *MESSAGES.checked}
    assert set(get_type_hints(MessageCreateParamsBase)) <= known
    assert set(get_type_hints(MessageCountTokensParams)) <= known
    assert set(get_type_hints(BetaParams)) - {"betas"} <= known  # those are a header
    assert not set(MESSAGES.passed) & set(MESSAGES.checked)


def test_a_text() -> None:
    assert asked() == {"max_tokens": 9, "messages": USER}


def test_system() -> None:
    assert asked(system="s")["messages"][0] == {"role": "system", "content": "s"}
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    assert asked(system=blocks)["messages"][0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


CONVERSATION: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "why", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"p": None}},
            {"type": "tool_use", "id": "b", "name": "f", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": "gone", "is_error": True},
            {"type": "text", "text": "and"},
            {"type": "text", "text": "now?"},
        ],
    },
]


def test_a_conversation() -> None:
    assert asked(messages=CONVERSATION)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {
            "role": "assistant",
            "reasoning_content": "why",
            "content": [{"type": "text", "text": "I look"}],
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"p": None}}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "tool", "tool_call_id": "b", "content": "Error: gone"},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "now?"}]},
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "Error: "),
        ({"content": []}, [{"type": "text", "text": "Error: "}]),
        ({"content": [{"type": "text", "text": "a"}]}, [{"type": "text", "text": "Error: a"}]),
    ],
)
def test_results_that_are_errors(content: Any, told: Any) -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "is_error": True, **content}
    assert asked(messages=[{"role": "user", "content": [block]}])["messages"][0]["content"] == told


def test_tools() -> None:
    tools = asked(tools=[{**TOOL, "description": "d", "strict": True, "type": "custom"}])["tools"]
    assert tools == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        }
    ]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ],
)
def test_choices(choice: Any, told: dict[str, Any]) -> None:
    assert asked(tool_choice=choice) == {**asked(), **told}


@pytest.mark.parametrize(
    ("thinking", "told", "shown"),
    [
        ({"type": "enabled", "budget_tokens": 2_000}, {"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"type": "disabled"}, {"reasoning_effort": "none"}, True),
        ({"type": "adaptive"}, {}, True),
        ({"type": "adaptive", "display": "omitted"}, {}, False),
        ({"type": "adaptive", "display": "summarized"}, {}, True),
    ],
)
def test_thinking(thinking: Any, told: dict[str, Any], shown: bool) -> None:
    found = read_messages({"max_tokens": 9, "messages": USER, "thinking": thinking})
    assert found.request == {**asked(), **told}
    assert found.thinking is shown


def test_other_names() -> None:
    schema = {"type": "object"}
    config = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    assert asked(stop_sequences=["a"], output_config=config) == {
        **asked(),
        "stop": ["a"],
        "reasoning_effort": "high",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }


SAME: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 3} | {name: {"a": 1} for name in EXTRAS}


@pytest.mark.parametrize("field", SAME)
def test_fields_that_the_backend_decides(field: str) -> None:
    assert asked(**{field: SAME[field]})[field] == SAME[field]


@pytest.mark.parametrize("field", sorted({*MESSAGES.checked, *MESSAGES.passed} - {"messages", "max_tokens"}))
def test_null_is_absent(field: str) -> None:
    assert asked(**{field: None}) == asked()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata", {"user_id": "u"}),
        ("service_tier", "auto"),
        ("cache_control", {"type": "ephemeral"}),
        ("speed", "standard"),
        ("mcp_servers", []),
        ("stop_sequences", []),
    ],
)
def test_harmless_fields_end_here(field: str, value: Any) -> None:
    assert asked(**{field: value}) == asked()


def block(**fields: Any) -> list[Any]:
    return [{"role": "user", "content": [fields]}]


@pytest.mark.parametrize(
    ("field", "value", "param", "code"),
    [
        ("max_tokens", None, "max_tokens", "missing"),
        ("messages", None, "messages", "missing"),
        ("messages", "x", "messages", "invalid_type"),
        ("messages", ["x"], "messages[0]", "invalid_type"),
        ("messages", [{"content": "x"}], "messages[0].role", "missing"),
        ("messages", [{"role": "tool", "content": "x"}], "messages[0].role", "invalid_value"),
        ("messages", [{"role": [], "content": "x"}], "messages[0].role", "invalid_value"),
        ("messages", [{"role": "user"}], "messages[0].content", "missing"),
        ("messages", [{"role": "user", "content": 5}], "messages[0].content", "invalid_type"),
        ("messages", [*USER, {"role": "assistant", "content": "I"}], "messages[1]", "unsupported"),
        ("messages", block(text="x"), "messages[0].content[0].type", "missing"),
        ("messages", block(type=5), "messages[0].content[0].type", "invalid_type"),
        ("messages", block(type="image", source={}), "messages[0].content[0].type", "unsupported"),
        ("messages", block(type="document", source={}), "messages[0].content[0].type", "unsupported"),
        ("messages", block(type="tool_use", id="a"), "messages[0].content[0].type", "unsupported"),
        ("messages", block(type="tool_result"), "messages[0].content[0].tool_use_id", "missing"),
        (
            "messages",
            block(type="tool_result", tool_use_id="a", content=[{"type": "image"}]),
            "messages[0].content[0].content[0].type",
            "unsupported",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}, *USER],
            "messages[0].content[0].input",
            "invalid_type",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": 5}]}, *USER],
            "messages[0].content[0].thinking",
            "invalid_type",
        ),
        ("system", [{"type": "image"}], "system[0].type", "unsupported"),
        ("tools", {}, "tools", "invalid_type"),
        ("tools", [{"name": "f"}], "tools[0].input_schema", "missing"),
        ("tools", [{**TOOL, "type": 5}], "tools[0].type", "invalid_type"),
        ("tools", [{**TOOL, "defer_loading": True}], "tools[0].defer_loading", "unsupported"),
        ("tools", [{**TOOL, "input_examples": [{}]}], "tools[0].input_examples", "unsupported"),
        ("tool_choice", "auto", "tool_choice", "invalid_type"),
        ("tool_choice", {"type": "required"}, "tool_choice.type", "invalid_value"),
        ("tool_choice", {"type": []}, "tool_choice.type", "invalid_value"),
        ("tool_choice", {"type": "tool"}, "tool_choice.name", "missing"),
        (
            "tool_choice",
            {"type": "any", "disable_parallel_tool_use": 1},
            "tool_choice.disable_parallel_tool_use",
            "invalid_type",
        ),
        ("stop_sequences", "a", "stop_sequences", "invalid_type"),
        ("thinking", True, "thinking", "invalid_type"),
        ("thinking", {"type": "between_tools"}, "thinking.type", "unsupported"),
        ("thinking", {"type": "enabled", "budget_tokens": "x"}, "thinking.budget_tokens", "invalid_type"),
        ("thinking", {"type": "enabled", "display": "loud"}, "thinking.display", "invalid_value"),
        ("output_config", "high", "output_config", "invalid_type"),
        ("output_config", {"format": {"type": "json_object"}}, "output_config.format.type", "invalid_value"),
        ("output_config", {"format": {"type": "json_schema"}}, "output_config.format.schema", "missing"),
        ("container", "c", "container", "unsupported"),
        ("context_management", {"edits": [{}]}, "context_management", "unsupported"),
        ("mcp_servers", [{}], "mcp_servers", "unsupported"),
        ("thread", {"type": "create"}, "thread", "thread_unsupported_request"),
        ("compaction", {"type": "auto"}, "compaction", "unsupported"),
        ("speed", "fast", "speed", "unsupported"),
    ],
)
def test_what_cannot_be_honoured_is_named(field: str, value: Any, param: str, code: str) -> None:
    assert refused(**{field: value}) == (param, code)


def test_thinking_that_contradicts_itself() -> None:
    off = {"type": "disabled"}
    assert refused(thinking=off, output_config={"effort": "high"}) == ("output_config.effort", "invalid_value")
    assert refused(thinking={"type": "enabled"}, chat_template_kwargs=5)[0] == "chat_template_kwargs"


def test_every_tool_that_anthropic_defines_is_refused_by_name() -> None:
    kinds = _kinds()
    assert {"web_search_20250305", "bash_20250124"} <= kinds
    for kind in kinds:
        with pytest.raises(ApiError, match=kind) as caught:
            read_messages({"max_tokens": 9, "messages": USER, "tools": [{"type": kind, "name": "x", "more": 1}]})
        assert (caught.value.param, caught.value.code) == ("tools[0].type", "unsupported")


def _kinds() -> set[str]:
    found: set[str] = set()
    for tool in get_args(ToolUnionParam):
        hint = get_type_hints(tool)["type"]
        while get_args(hint) and not isinstance(get_args(hint)[0], str):
            hint = get_args(hint)[0]
        found |= set(get_args(hint))
    return found - {"custom"}


def test_counting_needs_no_limit() -> None:
    assert read_counted({"messages": USER}).request == {"max_tokens": 1, "messages": USER}


@pytest.mark.parametrize(
    ("chat", "own"),
    [
        ("messages[0].content", "system"),
        ("messages[1].content[0].text", "messages[0].content[0].text"),
        ("messages[2].reasoning_content", "messages[1].content[0].thinking"),
        ("messages[2].content[0]", "messages[1].content[2]"),
        ("messages[2].tool_calls[0].id", "messages[1].content[3].id"),
        ("messages[2].tool_calls[1].function.name", "messages[1].content[4].name"),
        ("messages[2].tool_calls[1].function.arguments", "messages[1].content[4].input"),
        ("messages[3].tool_call_id", "messages[2].content[0].tool_use_id"),
        ("messages[4].content", "messages[2].content[1].content"),
        ("messages[5].content[1].text", "messages[2].content[3].text"),
        ("tools[0].function.parameters", "tools[0].input_schema"),
        ("tools[0].function.name", "tools[0].name"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
        ("stop[0]", "stop_sequences[0]"),
        ("chat_template_kwargs.enable_thinking", "thinking.type"),
        ("response_format.json_schema.schema", "output_config.format.schema"),
    ],
)
def test_errors_of_the_backend_name_the_callers_fields(chat: str, own: str) -> None:
    asked = read_messages(
        {
            "max_tokens": 5,
            "system": "s",
            "messages": CONVERSATION,
            "tools": [TOOL],
            "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "enabled"},
            "output_config": {"format": {"type": "json_schema", "schema": {}}},
        }
    )
    assert asked.places.own(chat) == own
