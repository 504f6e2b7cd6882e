"""The gateway in front of the shipped models, asked by OpenAI's own clients."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import openai
import pytest
from jsonschema import Draft202012Validator
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served
from tests.server.test_chat import ENDLESS

pytestmark = pytest.mark.server

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo", "Rome"]},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather.", "strict": True, "parameters": SCHEMA},
}
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url, "--served-model-name", "smollm2", "--api-key", "secret") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def client(gateway: Gateway, shipped: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="secret", max_retries=0) as client:
        yield client
    shipped.settle()


def valid(call: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(call.function.arguments)
    assert call.function.name == "get_weather"
    Draft202012Validator(SCHEMA).validate(arguments)
    return arguments


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["smollm2", "chat", "completions"]
    assert client.models.retrieve("chat@1").id == "chat@1"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("chat@2")


def test_a_tool_loop(client: OpenAI) -> None:
    """Call, result, answer."""
    first = client.chat.completions.create(
        model="smollm2", messages=ASK, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=64
    )
    assert first.choices[0].finish_reason == "tool_calls"
    message = first.choices[0].message
    assert message.tool_calls is not None
    [call] = message.tool_calls
    valid(call)
    history = [*ASK, message, {"role": "tool", "tool_call_id": call.id, "content": "12 degrees, rain"}]
    last = client.chat.completions.create(
        model="smollm2", messages=history, tools=[WEATHER], tool_choice="none", max_tokens=48
    )
    assert last.choices[0].message.content
    assert not last.choices[0].message.tool_calls
    assert last.choices[0].finish_reason in ("stop", "length")


def test_a_tool_loop_asyncio(gateway: Gateway, shipped: Served) -> None:
    async def loop() -> None:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="secret", max_retries=0) as client:
            first = await client.chat.completions.create(
                model="chat", messages=ASK, tools=[WEATHER], tool_choice=_NAMED, max_tokens=64
            )
            message = first.choices[0].message
            assert message.tool_calls is not None
            results = [{"role": "tool", "tool_call_id": call.id, "content": "12 C"} for call in message.tool_calls]
            assert all(valid(call) for call in message.tool_calls)
            history: Any = [*ASK, message, *results]
            stream = await client.chat.completions.create(model="chat", messages=history, max_tokens=32, stream=True)
            text = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(text)

    asyncio.run(loop())
    shipped.settle()


_NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


def test_stream_and_whole_agree(client: OpenAI) -> None:
    fields: Any = {
        "model": "chat", "messages": ASK, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 96
    }  # fmt: skip
    whole = client.chat.completions.create(**fields)
    pieces: dict[int, str] = {}
    names: list[str] = []
    reasons = []
    for chunk in client.chat.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            reasons.append(choice.finish_reason)
            for entry in choice.delta.tool_calls or ():
                assert entry.function is not None
                names += [entry.function.name] if entry.function.name else []
                pieces[entry.index] = pieces.get(entry.index, "") + (entry.function.arguments or "")
    calls: Any = whole.choices[0].message.tool_calls or ()
    assert [(call.function.name, call.function.arguments) for call in calls] == list(
        zip(names, pieces.values(), strict=True)
    )[: len(calls)]
    assert [reason for reason in reasons if reason] == [whole.choices[0].finish_reason]


def test_the_streaming_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="chat", messages=ASK, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=64
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == valid(call)


class Weather(BaseModel):
    """Asks for the weather."""

    city: Literal["Paris", "Oslo", "Rome"]
    days: int


class Answer(BaseModel):
    city: Literal["Paris", "Oslo", "Rome"]
    warm: bool


def test_parse_with_pydantic(client: OpenAI) -> None:
    tool = openai.pydantic_function_tool(Weather)
    parsed = client.chat.completions.parse(
        model="chat", messages=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=96
    )
    [call] = parsed.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    formatted = client.chat.completions.parse(model="chat", messages=ASK, response_format=Answer, max_tokens=64)
    assert isinstance(formatted.choices[0].message.parsed, Answer)


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt=["The capital of France is", "One, two,"], max_tokens=8)
    assert "Paris" in answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    stream = client.completions.create(model="chat", prompt="The capital of France is", max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


@pytest.mark.parametrize("stream", [True, False])
def test_faults_of_preprocess_and_compile_are_statuses(client: OpenAI, stream: bool) -> None:
    endless = {"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}
    for fields, param in (
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": ASK, "tools": [endless], "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"messages": ASK, "tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, "messages"),
    ):
        request: Any = {"model": "chat", "stream": stream, **fields}
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**request)
        assert (caught.value.param or "").startswith(param)


def test_the_key(gateway: Gateway) -> None:
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=f"{gateway.url}/v1", api_key="other", max_retries=0).models.list()


_HEAD = b"""POST /v1/chat/completions HTTP/1.1\r
Host: a\r
Authorization: Bearer secret\r
Content-Length: %d\r
\r
"""


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_the_run(gateway: Gateway, shipped: Served, stream: bool) -> None:
    before = shipped.settle()
    body = json.dumps({"model": "chat", **ENDLESS, "stream": stream}).encode()
    with socket.create_connection(gateway.address) as client:
        client.sendall(_HEAD % len(body) + body)
        deadline = time.monotonic() + 10
        while not shipped.metrics()["num_requests_running"]:
            assert time.monotonic() < deadline, "it never ran"
            time.sleep(0.02)
    shipped.settle(5.0)
    shipped.grown("requests_cancelled_total", before, 1)


@pytest.mark.timeout(300)
def test_random_visits_leave_nothing(gateway: Gateway, shipped: Served) -> None:
    """Some leave at any moment, some just behind the last event; tritonserver itself can let go of all."""

    def visit(seed: int) -> None:
        order = random.Random(seed)
        body = json.dumps(
            {
                "model": "chat",
                "messages": [{"role": "user", "content": "Say hello."}],
                "max_tokens": order.choice([1, 2, 8, 40]),
                "ignore_eos": True,
                "stream": order.random() < 0.6,
            }
        ).encode()
        with socket.create_connection(gateway.address, timeout=60) as client:
            client.sendall(_HEAD % len(body) + body)
            if order.random() < 0.5:
                time.sleep(order.random())
            else:
                read_to_the_end(client)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(visit, range(60)))
    shipped.settle()
    shipped.reload()


def read_to_the_end(client: socket.socket) -> None:
    """Up to the last event of a stream, or the end of a whole answer; never further."""
    received = b""
    while b"[DONE]" not in received and not received.endswith(b"}"):
        piece = client.recv(65_536)
        assert piece, received
        received += piece


def test_the_log_has_no_content(gateway: Gateway, client: OpenAI) -> None:
    asked = client.chat.completions.with_raw_response.create(
        model="chat",
        messages=[{"role": "user", "content": "pineapple"}],
        max_tokens=4,
        extra_headers={"x-request-id": "mine-1"},
    )
    assert asked.headers["x-request-id"] == "mine-1"
    deadline = time.monotonic() + 5
    while not (lines := [json.loads(line) for line in gateway.logged if "mine-1" in line]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (lines[0]["status"], lines[0]["completion_tokens"]) == (200, 4)
    assert "pineapple" not in "".join(gateway.logged + gateway.said)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with running_gateway(f"127.0.0.1:{reserved.getsockname()[1]}") as gateway:
            client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
            with pytest.raises(openai.InternalServerError) as caught:
                client.chat.completions.create(model="chat", messages=ASK)
            assert caught.value.status_code == 503
            assert caught.value.response.headers["retry-after"]
            assert gateway.stop() == 0
