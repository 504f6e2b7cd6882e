"""OpenAI's own client uses ``responses`` over scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from heptagram_client.errors import reported_error
from heptagram_wire.errors import WireError
from heptagram_wire.events import Event, Failure, Finish, Ping, TextDelta, Usage
from tests.client.samples import CALL, START, TEXT, each_alone
from tests.gateway.front import Running, running
from tests.gateway.scripted import ScriptedServer, endless, play
from tests.gateway.test_errors import error_of
from tests.gateway.test_responses_stream import read

PATH = "/v1/responses"
SHELL: Any = {
    "type": "function",
    "name": "shell",
    "description": "Run a command.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "strict": True,
}


def loop(server: ScriptedServer) -> None:
    """A call first, and an answer once its result is there."""

    async def script(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
        for events in each_alone(TEXT if request["messages"][-1]["role"] == "tool" else CALL):
            yield events

    server.script = script


def post(front: Running, **body: Any) -> Any:
    with front.http() as client:
        return client.post(PATH, json={"model": "chat", "input": "Hello", **body})


def test_a_tool_loop(front: Running, server: ScriptedServer) -> None:
    loop(server)
    history: list[Any] = [{"role": "user", "content": "List."}]
    with front.openai() as client:
        first = client.responses.create(model="chat", input=history, tools=[SHELL], instructions="be brief")
        history += first.output
        for item in first.output:
            if item.type == "function_call":
                assert json.loads(item.arguments) == {"command": "ls"}
                history.append({"type": "function_call_output", "call_id": item.call_id, "output": "a b"})
        last = client.responses.create(model="chat", input=history, tools=[SHELL], store=False)
    assert (first.status, first.instructions, first.tools[0].type) == ("completed", "be brief", "function")
    assert last.output_text == "Hello"
    assert last.usage is not None
    assert last.usage.total_tokens == 12
    assert server.requests[0][1]["messages"][0] == {"role": "system", "content": "be brief"}
    sent = server.requests[1][1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
    assert sent[1]["reasoning_content"] == "list it"
    assert sent[2] == {"role": "tool", "tool_call_id": "call-0", "content": "a b"}


def test_a_tool_loop_in_streams(front: Running, server: ScriptedServer) -> None:
    loop(server)

    async def run() -> str:
        async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
            history: list[Any] = [{"role": "user", "content": "List."}]
            async for event in await client.responses.create(model="chat", input=history, tools=[SHELL], stream=True):
                if event.type == "response.output_item.done":
                    history.append(event.item.model_dump(exclude_none=True))
                    if event.item.type == "function_call":
                        result = {"type": "function_call_output", "call_id": event.item.call_id, "output": "a b"}
            history.append(result)
            async with client.responses.stream(model="chat", input=history) as stream:
                return (await stream.get_final_response()).output_text

    assert asyncio.run(run()) == "Hello"


class shell(BaseModel):  # noqa: N801 (a tool's name)
    """Run a command."""

    command: str


def test_the_streaming_helper(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone(CALL))
    tool: Any = openai.pydantic_function_tool(shell)
    flat: Any = {"type": "function", **tool["function"]}
    with front.openai() as client, client.responses.stream(model="chat", input="Hello", tools=[flat]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert final.output[1].type == "function_call"
    assert json.loads(final.output[1].arguments) == {"command": "ls"}


def test_parsing(front: Running, server: ScriptedServer) -> None:
    server.script = play([START, TextDelta('{"command": "ls"}'), Finish("stop", Usage(1, 2))])
    with front.openai() as client:
        parsed = client.responses.parse(model="chat", input="Hello", text_format=shell)
    assert parsed.output_parsed == shell(command="ls")
    sent = server.requests[0][1]["response_format"]
    assert sent["json_schema"]["name"] == "shell"
    assert sent["json_schema"]["schema"]["required"] == ["command"]


def test_whole_and_streamed(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone(CALL))
    body = {"tools": [SHELL], "tool_choice": {"type": "function", "name": "shell"}, "metadata": {"a": "b"}}
    whole = post(front, **body).json()
    Response.model_validate(whole, strict=True)
    assert (whole["metadata"], whole["tool_choice"]) == ({"a": "b"}, {"type": "function", "name": "shell"})
    assert START.id not in str(whole)  # it could stop the request
    answer = post(front, stream=True, **body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    last = read(answer.text)[-1]["response"]
    assert [item["type"] for item in last["output"]] == [item["type"] for item in whole["output"]]
    first, second = front.lines(2)
    assert (first["endpoint"], first.get("stream", False)) == ("responses", False)
    assert (second["finish_reason"], second["completion_tokens"], second["stream"]) == ("tool_calls", 12, True)


@pytest.mark.parametrize("stream", [True, False])
def test_before_start_an_error_is_a_status(front: Running, server: ScriptedServer, stream: bool) -> None:
    server.script = play(reported_error(WireError("unsupported_schema", "no", "tools[0].function.parameters")))
    answer = post(front, stream=stream, tools=[SHELL])
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == ("tools[0].parameters", "unsupported_schema")
    assert error_of(post(front, previous_response_id="resp_1"))["param"] == "previous_response_id"
    assert error_of(post(front, model="moon"))["code"] == "model_not_found"


def test_after_start_it_is_in_the_stream(front: Running, server: ScriptedServer) -> None:
    server.script = play([START], [TextDelta("Hel")], [Failure("invalid_output", "no", "tools[0].function")])
    last = read(post(front, stream=True, tools=[SHELL]).text)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {
        "code": "server_error",
        "message": "no",
        "param": "tools[0]",
        "type": "invalid_output",
    }
    answer = post(front, tools=[SHELL])
    assert (answer.status_code, error_of(answer)["param"]) == (500, "tools[0]")
    assert [line["error"] for line in front.lines(2)] == ["invalid_output", "invalid_output"]


def test_events_that_do_not_fit_end_the_stream(front: Running, server: ScriptedServer) -> None:
    server.script = play([START], [Finish("tool_calls", Usage(1, 2))])
    assert read(post(front, stream=True).text)[-1]["type"] == "response.failed"
    assert post(front).status_code == 502


def test_silence_and_a_client_that_leaves() -> None:
    with running(endless([START], repeat=Ping()), keep_alive=0.05) as front:
        with (
            front.http() as client,
            client.stream("POST", PATH, json={"model": "chat", "input": "x", "stream": True}) as answer,
        ):
            lines = (line for line in answer.iter_lines() if line.startswith((":", "event")))
            assert [next(lines) for _ in range(3)] == [
                "event: response.created",
                "event: response.in_progress",
                ": keep-alive",
            ]
        front.at_rest()
        assert front.server.left == 1


def test_unknown_fields() -> None:
    with running(play(TEXT), unknown_fields="refuse") as front:
        assert error_of(post(front, mood=1))["param"] == "mood"
        items = [{"role": "user", "content": "x", "mood": 1}]
        assert error_of(post(front, input=items))["param"] == "input[].mood"
        assert post(front).status_code == 200
