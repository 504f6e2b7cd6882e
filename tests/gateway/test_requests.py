"""What becomes of each field of a request."""

from __future__ import annotations

import logging
from typing import Any, get_type_hints

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_create_params import CompletionCreateParamsBase as TextParamsBase

from heptagram_gateway.chat.request import read_chat
from heptagram_gateway.chat.table import CHAT
from heptagram_gateway.completions.request import COMPLETIONS, read_completion
from heptagram_gateway.errors import ApiError
from heptagram_gateway.fields import Each, Sorted, only, sort_fields
from heptagram_gateway.unknown import UnknownFields
from tests.gateway.front import Running, running
from tests.gateway.scripted import ScriptedServer, play
from tests.gateway.test_errors import error_of

USER = [{"role": "user", "content": "x"}]


def passed(**body: Any) -> dict[str, Any]:
    fields = read_chat({"model": "chat", "messages": USER, **body}).fields
    assert fields.unknown == ()
    return fields.passed


def refused(**body: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        read_chat({"messages": USER, **body})
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def test_the_whole_surface_of_the_openai_package_is_known() -> None:
    """Nothing that OpenAI has may count as a field that nobody knows."""
    for params, table in ((CompletionCreateParamsBase, CHAT), (TextParamsBase, COMPLETIONS)):
        known = {*table.passed, *table.checked, "stream"}
        assert set(get_type_hints(params)) <= known
    assert not set(CHAT.passed) & set(CHAT.checked)


PASSED: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"x-mine": {"deep": None}}, "strict": True}}
    ],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"title": None}, "strict": True}},
    "max_tokens": 2**63,
    "max_completion_tokens": -1,
    "stop": ["a", "b"],
    "n": 2,
    "seed": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"1": 1},
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "reasoning_effort": "high",
    "chat_template_kwargs": {"thinking": True},
    "functions": [],
    "modalities": ["text"],
    "top_k": 5,
    "heptagram": {"deadline_ms": 5, "mood": 1},
}


@pytest.mark.parametrize("field", PASSED)
def test_fields_that_the_backend_decides(field: str) -> None:
    assert passed(**{field: PASSED[field]}) == {"messages": USER, field: PASSED[field]}


@pytest.mark.parametrize("field", [*CHAT.checked, *CHAT.passed])
def test_null_is_absent(field: str) -> None:
    body = {"messages": USER, field: None}
    assert field not in read_chat(body).fields.passed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", "u"),
        ("metadata", {"a": "b"}),
        ("store", False),
        ("service_tier", "auto"),
        ("prompt_cache_key", "k"),
        ("safety_identifier", "s"),
        ("best_of", 1),
        ("skip_special_tokens", True),
        ("documents", []),
    ],
)
def test_harmless_fields_end_here(field: str, value: Any) -> None:
    assert passed(**{field: value}) == {"messages": USER}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("store", True, "unsupported"),
        ("service_tier", "priority", "unsupported"),
        ("guided_json", {}, "unsupported"),
        ("structured_outputs", {"regex": "a"}, "unsupported"),
        ("best_of", 2, "unsupported"),
        ("best_of", True, "unsupported"),
        ("min_tokens", 5, "unsupported"),
        ("echo", True, "unsupported"),
        ("chat_template", "{{ x }}", "unsupported"),
        ("thinking", {"type": "enabled"}, "unsupported"),
        ("user", 5, "invalid_type"),
        ("user", "u" * 2_000, "invalid_value"),
        ("metadata", "m", "invalid_type"),
        ("stream", "yes", "invalid_type"),
        ("model", 5, "invalid_type"),
        ("stream_options", [], "invalid_type"),
    ],
)
def test_what_cannot_be_honoured_is_named(field: str, value: Any, code: str) -> None:
    assert refused(**{field: value}) == (field, code)


def test_stream_options() -> None:
    """https://github.com/vllm-project/vllm/pull/36379"""
    assert read_chat({"stream": True, "stream_options": {"include_usage": True}}).usage
    assert not read_chat({"stream": True, "stream_options": {}}).usage
    assert not read_chat({"stream": True}).usage
    assert refused(stream=True, stream_options={"include_usage": "yes"}) == (
        "stream_options.include_usage",
        "invalid_type",
    )
    assert refused(stream=True, stream_options={"include_obfuscation": True})[0] == "stream_options.include_obfuscation"
    assert refused(stream=False, stream_options={"include_usage": True}) == ("stream_options", "invalid_value")


def test_what_sdks_dump_beside_a_message() -> None:
    """https://github.com/Gitlawb/openclaude/issues/878: nulls, and extras such as ``cache_control``."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": None}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "audio": None}
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    fields = read_chat({"messages": [message, {"role": "user", "content": [part], "id": 5}]}).fields
    assert fields.passed["messages"] == [
        {"role": "assistant", "tool_calls": [{k: v for k, v in call.items() if v is not None}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ]
    assert set(fields.unknown) == {"messages[].content[].cache_control", "messages[].id"}


@pytest.mark.parametrize("messages", [None, 5, "x", [5], [None], [{"content": {"a": 1}}], [{"tool_calls": [[]]}]])
def test_what_is_no_message_is_left_to_the_backend(messages: Any) -> None:
    fields = sort_fields({"messages": messages}, CHAT)
    assert fields.passed.get("messages") == messages
    assert sort_fields({"tools": [{"function": "f"}]}, CHAT).passed == {"tools": [{"function": "f"}]}
    assert isinstance(CHAT.passed["messages"], Each)


def test_names_and_roles_pass_through(front: Running, server: ScriptedServer) -> None:
    body: dict[str, Any] = {
        "messages": [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "latest_reminder", "content": "r"},
            {
                "role": "assistant",
                "reasoning_content": "because",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "namespace": "n", "arguments": '{"a": "'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
        "tools": [{"type": "function", "namespace": "n", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": {"name": "n::f"}},
    }
    assert front.post(**body).status_code == 200
    assert server.requests[0][1] == {**body, "stream": True}


def test_unknown_fields_are_ignored_and_logged_once(
    front: Running, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert (
            front.post(mood="secret", messages=[{"role": "user", "content": "x", "mood2": "secret"}]).status_code == 200
        )
    assert "mood" not in str(server.requests)
    said = [line.getMessage() for line in caplog.records if "mood" in line.getMessage()]
    assert len(said) == 2
    assert "secret" not in "".join(said)


def test_unknown_fields_can_be_refused() -> None:
    with running(play(), unknown_fields="refuse") as front:
        answer = front.post(mood="secret")
        assert answer.status_code == 400
        assert (error_of(answer)["param"], error_of(answer)["code"]) == ("mood", "unknown_field")
        assert error_of(front.post(messages=[{"role": "user", "mood": 1}]))["param"] == "messages[].mood"
        assert not front.server.requests


def test_invented_names_fill_neither_memory_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownFields(refuse=False)
    with caplog.at_level(logging.WARNING):
        for number in range(2_000):
            unknown.settle(sort_fields({f"field{number}" + "x" * 1_000: 1}, CHAT))
    assert len(caplog.records) <= 256
    assert all(len(line.getMessage()) < 200 for line in caplog.records)
    UnknownFields(refuse=True).settle(Sorted({}, ()))


def test_neutral_values_are_compared_with_their_type() -> None:
    check = only(1)
    check("x", 1)
    for value in (True, 1.0, "1", 2):
        with pytest.raises(ApiError):
            check("x", value)


@pytest.mark.parametrize(
    ("prompt", "code", "word"),
    [
        (None, "missing", "required"),
        ([], "invalid_type", "list of strings"),
        (5, "invalid_type", "list of strings"),
        ([1, 2], "unsupported", "token ids"),
        ([[1, 2]], "unsupported", "token ids"),
        (["a", None], "invalid_type", "string"),
        (["a"] * 33, "invalid_value", "32"),
    ],
)
def test_prompts(prompt: Any, code: str, word: str) -> None:
    with pytest.raises(ApiError, match=word) as caught:
        read_completion({"prompt": prompt})
    assert caught.value.code == code
    assert (caught.value.param or "").startswith("prompt")


@pytest.mark.parametrize("field", ["suffix", "best_of", "response_format", "guided_regex"])
def test_completion_fields_that_cannot_be_honoured(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_completion({"prompt": "a", field: 5})
    assert caught.value.param == field
