"""OpenAI's own clients over scripted answers: sync, asyncio, the streaming helper, parsing, retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from heptagram_client.errors import reported_error
from heptagram_wire.errors import WireError
from heptagram_wire.events import Event, Finish
from tests.client.samples import CALL, START, TEXT, each_alone
from tests.gateway.front import Running
from tests.gateway.scripted import ScriptedServer, play

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


class shell(BaseModel):  # noqa: N801 (a tool's name)
    """Run a command."""

    command: str


def loop(server: ScriptedServer) -> None:
    """A call first, and an answer once its result is there."""

    async def script(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
        for events in each_alone(TEXT if request["messages"][-1]["role"] == "tool" else CALL):
            yield events

    server.script = script


def test_a_tool_loop(front: Running, server: ScriptedServer) -> None:
    loop(server)
    history = [*HELLO]
    with front.openai() as client:
        message = client.chat.completions.create(model="chat", messages=history).choices[0].message
        for call in message.tool_calls or ():
            history += [message, {"role": "tool", "tool_call_id": call.id, "content": "a b"}]
        answer = client.chat.completions.create(model="chat", messages=history)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    sent = server.requests[1][1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
    assert sent[1]["reasoning_content"] == "list it"
    assert sent[2] == {"role": "tool", "tool_call_id": "call-0", "content": "a b"}


def test_a_tool_loop_with_asyncio(front: Running, server: ScriptedServer) -> None:
    loop(server)

    async def run() -> str:
        async with AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
            history = [*HELLO]
            async with client.chat.completions.stream(model="chat", messages=history) as stream:
                message = (await stream.get_final_completion()).choices[0].message
            assert message.tool_calls is not None
            history += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "a b"}]
            chunks = await client.chat.completions.create(model="chat", messages=history, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    assert asyncio.run(run()) == "Hello"


def test_the_streaming_helper(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone(CALL))
    tool = openai.pydantic_function_tool(shell)
    with (
        front.openai() as client,
        client.chat.completions.stream(model="chat", messages=HELLO, tools=[tool]) as stream,
    ):
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.name for event in done] == ["shell"]
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == shell(command="ls")


def test_parsing(front: Running, server: ScriptedServer) -> None:
    server.script = play(CALL)
    with front.openai() as client:
        parsed = client.chat.completions.parse(
            model="chat", messages=HELLO, tools=[openai.pydantic_function_tool(shell)]
        )
        [call] = parsed.choices[0].message.tool_calls or []
        assert call.function.parsed_arguments == shell(command="ls")
        server.script = play([START, Finish("length")])
        with pytest.raises(openai.LengthFinishReasonError):
            client.chat.completions.parse(model="chat", messages=HELLO, response_format=shell)


def test_the_client_comes_back_when_told_to(front: Running, server: ScriptedServer) -> None:
    busy, good = play(reported_error(WireError("overloaded", "full"))), play(TEXT)
    server.script = lambda request: (busy if len(server.requests) == 1 else good)(request)
    with OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=1) as client:
        assert client.chat.completions.create(model="chat", messages=HELLO).choices[0].message.content == "Hello"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unsupported", openai.BadRequestError),
        ("model_not_found", openai.NotFoundError),
        ("internal", openai.InternalServerError),
    ],
)
def test_errors_are_the_clients_own(
    front: Running, server: ScriptedServer, code: str, kind: type[openai.APIStatusError]
) -> None:
    server.script = play(reported_error(WireError(code, "what to do", "tools[0]")))
    with front.openai() as client, pytest.raises(kind) as caught:
        client.chat.completions.create(model="chat", messages=HELLO, stream=True)
    assert (caught.value.code, caught.value.param) == (code, "tools[0]")
    assert "what to do" in caught.value.message
    assert caught.value.request_id


def test_leaving_the_clients_stream_cancels(front: Running, server: ScriptedServer) -> None:
    server.script = play([START], *[TEXT[1:2]] * 1000, 60.0)
    with front.openai() as client, client.chat.completions.create(model="chat", messages=HELLO, stream=True) as stream:
        next(iter(stream))
    front.at_rest()
    assert server.left == 1
