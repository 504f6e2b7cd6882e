"""The Responses and the Messages API in front of the shipped models, asked by the official clients."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from jsonschema import Draft202012Validator
from openai import OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served
from tests.server.test_gateway import SCHEMA

pytestmark = pytest.mark.server

QUESTION = "What is the weather in Paris, in celsius?"
ASK: list[Any] = [{"role": "user", "content": QUESTION}]
FLAT: Any = {
    "type": "function", "name": "get_weather", "description": "The weather.", "parameters": SCHEMA, "strict": True
}  # fmt: skip
TOOL: Any = {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA, "strict": True}
ENDLESS: Any = {"$ref": "#"}


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url, "--api-key", "secret") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def client(gateway: Gateway, shipped: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="secret", max_retries=0) as client:
        yield client
    shipped.settle()


@pytest.fixture
def claude(gateway: Gateway, shipped: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=gateway.url, api_key="secret", max_retries=0) as client:
        yield client
    shipped.settle()


def valid(arguments: Any) -> None:
    Draft202012Validator(SCHEMA).validate(arguments)


def test_a_tool_loop_of_responses(client: OpenAI) -> None:
    """Call, result, answer."""
    fields: Any = {"model": "chat", "tools": [FLAT], "max_output_tokens": 64}
    first = client.responses.create(input=ASK, tool_choice="required", parallel_tool_calls=False, **fields)
    assert first.status == "completed"
    [call] = [item for item in first.output if item.type == "function_call"]
    valid(json.loads(call.arguments))
    assert call.name == "get_weather"
    history: Any = [*ASK, *first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees, rain"})
    last = client.responses.create(input=history, tool_choice="none", **fields)
    assert last.output_text
    assert last.usage is not None
    assert last.usage.input_tokens > 50


def test_a_streamed_response_ends_as_the_whole_one(client: OpenAI) -> None:
    fields: Any = {"model": "chat", "input": QUESTION, "tools": [FLAT], "max_output_tokens": 96}
    choice: Any = {"type": "function", "name": "get_weather"}
    whole = client.responses.create(**fields, tool_choice=choice)
    with client.responses.stream(**fields, tool_choice=choice) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    [call] = [item for item in final.output if item.type == "function_call"]
    assert "".join(deltas) == call.arguments
    valid(json.loads(call.arguments))
    assert _content(final) == _content(whole)


def _content(response: Response) -> list[Any]:
    return [(item.name, item.arguments) for item in response.output if item.type == "function_call"]


class Weather(BaseModel):
    city: str
    warm: bool


def test_a_parsed_response(client: OpenAI) -> None:
    parsed = client.responses.parse(model="chat", input=QUESTION, text_format=Weather, max_output_tokens=96)
    assert isinstance(parsed.output_parsed, Weather)


def test_a_response_that_is_cut(client: OpenAI) -> None:
    cut = client.responses.create(
        model="chat", input=QUESTION, tools=[FLAT], tool_choice="required", max_output_tokens=4
    )
    assert (cut.status, cut.output) == ("incomplete", [])
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    text = client.responses.create(model="chat", input=QUESTION, max_output_tokens=4)
    assert (text.status, text.output[0].type) == ("incomplete", "message")


@pytest.mark.parametrize("stream", [True, False])
def test_faults_name_the_fields_of_a_response(client: OpenAI, stream: bool) -> None:
    for fields, param in (
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "", "arguments": "{}"}]}, "input[0].name"),
        ({"input": "x", "tools": [{**FLAT, "parameters": ENDLESS}], "tool_choice": "required"}, "tools[0].parameters"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "reasoning": {"effort": "high"}}, "reasoning.effort"),
        (
            {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": ENDLESS}}},
            "text.format.schema",
        ),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": "word " * 20_000}, "input"),
    ):
        request: Any = {"model": "chat", "stream": stream, **fields}
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**request)
        assert (caught.value.param or "").startswith(param)


def test_a_tool_loop_of_messages(claude: Anthropic) -> None:
    """Call, result, answer."""
    fields: Any = {"model": "chat", "tools": [TOOL], "max_tokens": 64, "system": "You know the weather."}
    one: Any = {"type": "any", "disable_parallel_tool_use": True}
    first = claude.messages.create(messages=ASK, tool_choice=one, **fields)
    assert first.stop_reason == "tool_use"
    [call] = [block for block in first.content if block.type == "tool_use"]
    valid(call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees, rain"}
    history: Any = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = claude.messages.create(messages=history, tool_choice={"type": "none"}, **fields)
    assert last.stop_reason in ("end_turn", "max_tokens")
    assert [block.type for block in last.content] == ["text"]


def test_a_streamed_message_ends_as_the_whole_one(claude: Anthropic) -> None:
    fields: Any = {"model": "chat", "messages": ASK, "tools": [TOOL], "max_tokens": 96}
    choice: Any = {"type": "tool", "name": "get_weather"}
    whole = claude.messages.create(**fields, tool_choice=choice)
    with claude.messages.stream(**fields, tool_choice=choice) as stream:
        final = stream.get_final_message()
    first = [block.input for block in whole.content if block.type == "tool_use"]
    assert first
    assert [block.input for block in final.content if block.type == "tool_use"] == first
    valid(first[0])
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_the_tool_runner(claude: Anthropic) -> None:
    """The package's own loop, to its end."""
    ran: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        ran.append(city)
        return "12 degrees, rain"

    runner = claude.beta.messages.tool_runner(
        model="chat", max_tokens=64, messages=ASK, tools=[get_weather], tool_choice={"type": "any"}, max_iterations=2
    )
    messages = list(runner)
    assert len(messages) == 2
    assert messages[0].stop_reason in ("tool_use", "max_tokens")
    assert ran


def test_stop_sequences_and_json(claude: Anthropic) -> None:
    text = claude.messages.create(
        model="chat",
        max_tokens=32,
        messages=[{"role": "user", "content": "Count from one to ten."}],
        stop_sequences=["\n"],
    )
    assert text.stop_reason in ("end_turn", "max_tokens")
    assert all("\n" not in block.text for block in text.content if block.type == "text")
    config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    made = claude.messages.create(model="chat", max_tokens=64, messages=ASK, output_config=config)
    assert made.content[0].type == "text"
    valid(json.loads(made.content[0].text))


def test_counted_as_charged(claude: Anthropic, shipped: Served) -> None:
    """What is counted is what the same request is charged for, and nothing keeps running."""
    fields: Any = {"model": "chat", "messages": ASK, "tools": [TOOL], "system": "You know the weather."}
    counted = claude.messages.count_tokens(**fields).input_tokens
    shipped.settle()
    assert counted == claude.messages.create(**fields, max_tokens=1).usage.input_tokens


def test_thinking_is_the_formats_matter(claude: Anthropic) -> None:
    off = claude.messages.create(model="chat", max_tokens=2, messages=ASK, thinking={"type": "disabled"})
    assert off.content
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.effort: "):
        claude.messages.create(model="chat", max_tokens=2, messages=ASK, output_config={"effort": "high"})


@pytest.mark.parametrize("stream", [True, False])
def test_faults_name_the_fields_of_a_message(claude: Anthropic, stream: bool) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "x"}}
    for fields, param in (
        ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": ASK, "tools": [{**TOOL, "input_schema": ENDLESS}], "tool_choice": {"type": "any"}},
            "tools[0].input",
        ),
        ({"messages": ASK, "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"messages": ASK, "stop_sequences": [""]}, "stop_sequences[0]"),
        ({"messages": ASK, "max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, "messages"),
    ):
        request: Any = {"model": "chat", "max_tokens": 8, "stream": stream, **fields}
        with pytest.raises(anthropic.BadRequestError) as caught:
            claude.messages.create(**request)
        body: Any = caught.value.body
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["message"].startswith(param)


def test_the_key(gateway: Gateway) -> None:
    with (
        Anthropic(base_url=gateway.url, api_key="other", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.messages.count_tokens(model="chat", messages=ASK)


@pytest.mark.parametrize("path", ["responses", "messages"])
def test_a_client_that_leaves_ends_the_run(gateway: Gateway, shipped: Served, path: str) -> None:
    before = shipped.settle()
    fields = {"input": "Count."} if path == "responses" else {"messages": [{"role": "user", "content": "Count."}]}
    limit = {"max_output_tokens" if path == "responses" else "max_tokens": 2_000}
    body = json.dumps({"model": "chat", "stream": True, "ignore_eos": True, **fields, **limit}).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: a\r\nx-api-key: secret\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(gateway.address) as client:
        client.sendall(head.encode() + body)
        deadline = time.monotonic() + 10
        while not shipped.metrics()["num_requests_running"]:
            assert time.monotonic() < deadline, "it never ran"
            time.sleep(0.02)
    shipped.settle(5.0)
    shipped.grown("requests_cancelled_total", before, 1)
