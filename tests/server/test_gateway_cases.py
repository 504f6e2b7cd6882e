"""What people hit elsewhere with HTTP fronts, sent through the gateway to the real models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from heptagram_client import Client, ServerError
from heptagram_wire import tensors as names
from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served

pytestmark = pytest.mark.server

CHAT = "/v1/chat/completions"
USER: dict[str, Any] = {"role": "user", "content": "Weather in Oslo?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Gateway, shipped: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=60, verify=False) as client:
        yield client
    shipped.settle()


def ask(client: httpx2.Client, **body: Any) -> httpx2.Response:
    return client.post(CHAT, json={"model": "chat", "messages": [USER], "max_tokens": 2, **body})


def error(answer: httpx2.Response) -> tuple[int, str | None]:
    told = answer.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    return answer.status_code, told["param"]


def history(**assistant: Any) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call], **assistant}
    return [
        USER,
        answer,
        {"role": "tool", "tool_call_id": "c1", "content": "4C"},
        {"role": "user", "content": "Short?"},
    ]


@pytest.mark.parametrize("arguments", ['{"city": "Os', "", "null", '{"city": "a", "city": "b"}'])
def test_arguments_of_past_calls(client: httpx2.Client, arguments: str) -> None:
    """https://github.com/vllm-project/vllm/pull/48922"""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    assert ask(client, messages=history(tool_calls=[call]), tools=[TOOL]).status_code == 200


def test_null_contents(client: httpx2.Client) -> None:
    """https://github.com/sgl-project/sglang/pull/39043"""
    silent = [*history()[:2], {"role": "tool", "tool_call_id": "c1", "content": None}]
    assert ask(client, messages=silent, tools=[TOOL]).status_code == 200
    for role in ("user", "developer", "assistant"):
        assert error(ask(client, messages=[{"role": role, "content": None}])) == (400, "messages[0].content")


def test_roles(client: httpx2.Client) -> None:
    """https://github.com/decolua/9router/issues/773"""
    assert ask(client, messages=[{"role": "developer", "content": "French."}, USER]).status_code == 200
    for role in ("function", "User", "admin"):
        assert error(ask(client, messages=[{"role": role, "content": "x"}])) == (400, "messages[0].role")
    assert error(ask(client, messages=[])) == (400, "messages")


def test_namespaces(client: httpx2.Client) -> None:
    """https://github.com/local-inference-lab/vllm/pull/787"""
    tools = [{**TOOL, "namespace": "a"}, {**TOOL, "namespace": "b"}]
    chosen: Any = {"type": "function", "function": {"name": "b::get_weather"}}
    answer = ask(client, tools=tools, tool_choice=chosen, max_tokens=96).json()
    assert {call["function"]["name"] for call in answer["choices"][0]["message"].get("tool_calls", ())} <= {
        "b::get_weather"
    }
    bare: Any = {"type": "function", "function": {"name": "get_weather"}}
    assert error(ask(client, tools=tools, tool_choice=bare)) == (400, "tool_choice")


def test_reasoning_of_earlier_turns(client: httpx2.Client) -> None:
    """https://github.com/Gitlawb/openclaude/issues/878: with, without, empty, and all that SDKs dump."""
    dumped: dict[str, Any] = {
        "refusal": None,
        "audio": None,
        "annotations": [],
        "function_call": None,
        "reasoning_content": None,
    }
    for extra in ({}, {"reasoning_content": "Oslo."}, {"reasoning_content": ""}, dumped):
        assert ask(client, messages=history(**extra), tools=[TOOL]).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", value) for value in (2**63, 0, -1, 1.5, "10", True)]
    + [("n", value) for value in (0, 10**6, -1)]
    + [("top_logprobs", 21), ("stop", "x" * 300), ("stop", ["a"] * 99), ("stop", [""]), ("temperature", 3)],
)
def test_values_out_of_range(client: httpx2.Client, field: str, value: Any) -> None:
    """https://github.com/triton-inference-server/server/pull/8770 and its kind: nothing wraps, nothing is huge."""
    for stream in (True, False):
        status, param = error(ask(client, stream=stream, **{field: value}))
        assert (status, (param or "").partition("[")[0]) == (400, field)


def test_sizes(client: httpx2.Client) -> None:
    assert ask(client, max_tokens=2**31 + 1, stop=["\n", "."], messages=[USER]).status_code == 200
    assert ask(client, messages=[{"role": "user", "content": "x" * 10_000_000}]).status_code == 413
    long = ask(client, messages=[{"role": "user", "content": "x" * 3_000_000}])
    assert long.json()["error"]["code"] == "context_length_exceeded"


def test_a_shell_call_constrained_and_ordinary(client: httpx2.Client) -> None:
    """A finished call that validates; without ``strict`` and under ``auto`` whatever the model says."""
    function: dict[str, Any] = {
        "name": "shell",
        "description": "Run a shell command",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
            "additionalProperties": False,
        },
    }
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Show the current directory."}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "temperature": 0,
        "max_tokens": 256,
    }
    [choice] = ask(client, **body).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] == "shell"
        assert list(json.loads(call["function"]["arguments"])) == ["command"]
    del function["strict"]
    [choice] = ask(client, **{**body, "tool_choice": "auto", "max_tokens": 48}).json()["choices"]
    assert choice["message"]["content"] or choice["message"]["tool_calls"]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_our_client_asks_one_version(shipped: Served, scheme: str) -> None:
    address = shipped.process.address
    url = f"{scheme}://{address.grpc_url if scheme == 'grpc' else address.http_url}"
    request = {"messages": [USER], "max_tokens": 2}
    with Client(url, model="chat@1") as client:
        assert client.complete(request).start is not None
    with Client(url, model="chat@9") as client, pytest.raises(ServerError, match="chat"):
        client.complete(request)


def test_a_model_that_is_unloaded(client: httpx2.Client, shipped: Served) -> None:
    shipped.post(f"repository/models/{names.CHAT}/unload", {})
    shipped.wait_unloaded(names.CHAT)
    try:
        answer = ask(client, stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert answer.headers["retry-after"]
        reason = client.get("/health/ready").json()["error"]
        assert (reason["code"], "'chat' is not ready" in reason["message"]) == ("not_ready", True)
        assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["completions"]
    finally:
        assert shipped.post(f"repository/models/{names.CHAT}/load", {}).status == 200
    assert ask(client).status_code == 200
