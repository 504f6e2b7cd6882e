"""Anthropic's own client over scripted answers, and Anthropic's error object for every error of its paths."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message

from heptagram_client.errors import reported_error
from heptagram_wire.errors import WireError
from heptagram_wire.events import Event, Failure, Finish, Ping, TextDelta, Usage
from tests.client.samples import CALL, START, TEXT, each_alone
from tests.gateway.front import Running, running
from tests.gateway.scripted import ScriptedServer, endless, play
from tests.gateway.test_messages_stream import read

PATH = "/v1/messages"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
SHELL: Any = {
    "name": "shell",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def loop(server: ScriptedServer) -> None:
    """A call first, and an answer once its result is there."""

    async def script(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
        for events in each_alone(TEXT if request["messages"][-1]["role"] == "tool" else CALL):
            yield events

    server.script = script


def client_of(front: Running, key: str = "none") -> Anthropic:
    return Anthropic(base_url=front.url, api_key=key, max_retries=0)


@pytest.fixture
def client(front: Running) -> Iterator[Anthropic]:
    with client_of(front) as client:
        yield client


def post(front: Running, path: str = PATH, **body: Any) -> httpx2.Response:
    with front.http() as client:
        return client.post(path, json={"model": "chat", "max_tokens": 9, "messages": HELLO, **body})


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """The error object of an answer, checked for its shape."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["x-request-id"]
    assert set(body["error"]) == {"type", "message", "details"}
    error: dict[str, Any] = body["error"]
    assert list(error.pop("details")) == ["error_code"]
    return error


def test_a_tool_loop(client: Anthropic, server: ScriptedServer) -> None:
    loop(server)
    first = client.messages.create(model="chat", max_tokens=99, system="be brief", messages=HELLO, tools=[SHELL])
    assert first.stop_reason == "tool_use"
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "a b"}
        for block in first.content
        if block.type == "tool_use" and block.input == {"command": "ls"}
    ]
    history: Any = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = client.messages.create(model="chat", max_tokens=99, messages=history, tools=[SHELL])
    assert last.stop_reason == "end_turn"
    assert [block.text for block in last.content if block.type == "text"] == ["Hello"]
    assert (last.usage.input_tokens, last.usage.output_tokens) == (10, 2)
    assert server.requests[0][1]["messages"][0] == {"role": "system", "content": "be brief"}
    sent = server.requests[1][1]["messages"]
    assert sent[1]["reasoning_content"] == "list it"
    assert sent[1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": {"command": "ls"}}
    assert sent[2] == {"role": "tool", "tool_call_id": "call-0", "content": "a b"}


def test_a_tool_loop_in_streams(front: Running, server: ScriptedServer) -> None:
    loop(server)

    async def run() -> str:
        async with AsyncAnthropic(base_url=front.url, api_key="none", max_retries=0) as client:
            async with client.messages.stream(model="chat", max_tokens=99, messages=HELLO, tools=[SHELL]) as stream:
                kinds = [event.type async for event in stream]
                first = await stream.get_final_message()
            assert "input_json" in kinds
            assert "thinking" in kinds
            results: list[Any] = [
                {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "a b"}]}
                for block in first.content
                if block.type == "tool_use" and block.input == {"command": "ls"}
            ]
            history: Any = [*HELLO, {"role": "assistant", "content": first.content}]
            history.append({"role": "user", "content": results})
            async with client.messages.stream(model="chat", max_tokens=99, messages=history) as stream:
                return "".join([text async for text in stream.text_stream])

    assert asyncio.run(run()) == "Hello"


def test_the_tool_runner(client: Anthropic, server: ScriptedServer) -> None:
    """The package's own loop. It asks for a conversation that is kept on the server, and goes on without when told."""
    loop(server)
    ran: list[str] = []

    @anthropic.beta_tool
    def shell(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "a b"

    runner = client.beta.messages.tool_runner(model="chat", max_tokens=99, messages=HELLO, tools=[shell])
    last = runner.until_done()
    roles = [[message["role"] for message in request["messages"]] for _, request in server.requests]
    assert roles == [["user"], ["user", "assistant", "tool"]]
    assert all(request["tools"] for _, request in server.requests)
    assert ran == ["ls"]
    assert (last.content[0].type, last.stop_reason) == ("text", "end_turn")


def test_counting_tokens(client: Anthropic, front: Running, server: ScriptedServer) -> None:
    """The engine counts, with one token, and is not left before its end."""
    assert client.messages.count_tokens(model="chat", messages=HELLO, system="s", tools=[SHELL]).input_tokens == 10
    front.at_rest()
    assert server.left == 0
    assert server.requests[0][1]["max_tokens"] == 1
    assert front.lines(1)[0]["endpoint"] == "count_tokens"


def test_whole_and_streamed(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone(CALL))
    whole = post(front, tools=[SHELL]).json()
    Message.model_validate(whole, strict=True)
    assert START.id not in str(whole)
    answer = post(front, tools=[SHELL], stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [event["type"] for event in read(answer.text)][-2:] == ["message_delta", "message_stop"]
    first, second = front.lines(2)
    assert first["endpoint"] == "messages"
    assert (second["finish_reason"], second["completion_tokens"], second["stream"]) == ("tool_calls", 12, True)


@pytest.mark.parametrize("stream", [True, False])
def test_before_start_an_error_is_a_status(front: Running, server: ScriptedServer, stream: bool) -> None:
    server.script = play(reported_error(WireError("unsupported_schema", "no", "tools[0].function.parameters.a")))
    answer = post(front, stream=stream, tools=[SHELL])
    assert answer.status_code == 400
    assert error_of(answer) == {"type": "invalid_request_error", "message": "tools[0].input_schema.a: no"}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
@pytest.mark.parametrize(
    ("code", "status", "kind", "raised"),
    [
        ("unsupported", 400, "invalid_request_error", anthropic.BadRequestError),
        ("model_not_found", 404, "not_found_error", anthropic.NotFoundError),
        ("overloaded", 503, "overloaded_error", anthropic.InternalServerError),
        ("draining", 503, "overloaded_error", anthropic.InternalServerError),
        ("internal", 500, "api_error", anthropic.InternalServerError),
        ("deadline", 504, "timeout_error", anthropic.InternalServerError),
    ],
)
def test_errors(
    front: Running, server: ScriptedServer, path: str, code: str, status: int, kind: str, raised: Any
) -> None:
    server.script = play(reported_error(WireError(code, "what to do")))
    answer = post(front, path)
    assert (answer.status_code, error_of(answer)) == (status, {"type": kind, "message": "what to do"})
    assert ("retry-after" in answer.headers) == (kind == "overloaded_error")
    with client_of(front) as client, pytest.raises(raised, match="what to do"):
        client.messages.create(model="chat", max_tokens=9, messages=HELLO)


def test_after_start_it_is_in_the_stream(front: Running, server: ScriptedServer) -> None:
    server.script = play([START], [TextDelta("Hel")], [Failure("invalid_output", "no", "tools[0].function")])
    answer = post(front, stream=True, tools=[SHELL])
    last = read(answer.text)[-1]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "tools[0]: no", "details": {"error_code": "invalid_output"}},
        "request_id": answer.headers["x-request-id"],
    }
    assert post(front, tools=[SHELL]).status_code == 500
    with (
        client_of(front) as client,
        client.messages.stream(model="chat", max_tokens=9, messages=HELLO, tools=[SHELL]) as stream,
        pytest.raises(anthropic.APIStatusError, match="no"),
    ):
        stream.until_done()


def test_events_that_do_not_fit_end_the_stream(front: Running, server: ScriptedServer) -> None:
    server.script = play([START], [Finish("tool_calls", Usage(1, 2))])
    assert read(post(front, stream=True).text)[-1]["type"] == "error"
    assert post(front).status_code == 502


def test_paths_methods_and_bodies(front: Running) -> None:
    with front.http() as client:
        answers = {
            400: client.post(PATH, content=b"{"),
            404: client.post(f"{PATH}/batches", json={}),
            405: client.get(PATH),
        }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert error_of(answer)["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert error_of(post(front, model="moon"))["type"] == "not_found_error"
    assert error_of(post(front, max_tokens=None)) == {
        "type": "invalid_request_error",
        "message": "max_tokens: this field is required",
    }


def test_keys_and_limits() -> None:
    script = endless([START], repeat=Ping())
    with running(script, api_keys=("good",), concurrency=1, body_bytes=2_000) as front:
        with client_of(front, "bad") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(model="chat", max_tokens=9, messages=HELLO)
        assert error_of(post(front))["type"] == "authentication_error"
        headers = {"x-api-key": "good"}
        with front.http() as http:
            large = http.post(PATH, headers=headers, json={"messages": "x" * 3_000})
            assert (large.status_code, error_of(large)["type"]) == (413, "request_too_large")
            body = {"model": "chat", "max_tokens": 9, "messages": HELLO}
            with http.stream("POST", PATH, headers=headers, json={**body, "stream": True}) as first:
                lines = first.iter_lines()  # if nobody held it, the connection would be closed
                assert next(lines) == "event: message_start"
                with front.http() as other:
                    busy = other.post(PATH, headers=headers, json=body)
                assert (busy.status_code, error_of(busy)["type"]) == (429, "rate_limit_error")
                assert busy.headers["retry-after"]
        front.at_rest()
        assert front.server.left == 1


def test_unknown_fields() -> None:
    with running(play(TEXT), unknown_fields="refuse") as front:
        assert error_of(post(front, mood=1))["message"].startswith("mood: ")
        blocks = [{"role": "user", "content": [{"type": "text", "text": "x", "mood": 1}]}]
        assert error_of(post(front, messages=blocks))["message"].startswith("messages[].content[].mood: ")
        assert post(front).status_code == 200
