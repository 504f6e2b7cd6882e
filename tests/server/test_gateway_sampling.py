"""Sampling and log probabilities through the gateway in front of the shipped models, asked by OpenAI's client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served
from tests.server.test_gateway import ASK, WEATHER, valid

pytestmark = pytest.mark.server

TELL: list[Any] = [{"role": "user", "content": "Tell me a story about a fox."}]
SAMPLED: Any = {"model": "chat", "max_tokens": 24, "temperature": 1.0, "top_p": 0.95, "seed": 11}


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url) as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def client(gateway: Gateway, shipped: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        yield client
    shipped.settle()


def content_of(choice: Any) -> list[Any]:
    assert choice.logprobs is not None
    return [entry.model_dump() for entry in choice.logprobs.content]


def test_a_seed_gives_a_chat_again(client: OpenAI) -> None:
    asked: Any = {**SAMPLED, "messages": TELL, "logprobs": True, "top_logprobs": 3}
    first, second = (client.chat.completions.create(**asked) for _ in range(2))
    [choice] = first.choices
    assert choice.message.content == second.choices[0].message.content
    entries = content_of(choice)
    assert entries == content_of(second.choices[0])
    assert "".join(entry["token"] for entry in entries) == choice.message.content
    for entry in entries:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        best = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
        assert -math.inf < entry["logprob"] <= best[0] <= 0
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == choice.message.content
    assert [entry for chunk in chunks if chunk.logprobs for entry in content_of(chunk)] == entries
    others = {client.chat.completions.create(**asked | {"seed": seed}).choices[0].message.content for seed in range(3)}
    assert len(others | {choice.message.content}) > 1, "the seed changes nothing"


def test_a_response_tells_what_a_chat_tells(client: OpenAI) -> None:
    chat = client.chat.completions.create(**SAMPLED, messages=TELL, logprobs=True, top_logprobs=2).choices[0]
    more: Any = {key: value for key, value in SAMPLED.items() if key not in ("max_tokens", "seed")}
    more |= {"input": TELL, "max_output_tokens": SAMPLED["max_tokens"], "extra_body": {"seed": SAMPLED["seed"]}}
    more |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = client.responses.create(**more)
    *_, last = client.responses.create(**more, stream=True)
    assert last.type == "response.incomplete"
    for response in (whole, last.response):
        assert (response.output_text, response.top_logprobs) == (chat.message.content, 2)
        [part] = response.output[0].model_dump()["content"]
        assert part["logprobs"] == content_of(chat)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**more | {"top_logprobs": 21})
    assert caught.value.param == "top_logprobs"


def test_without_temperature_the_answer_is_greedy(client: OpenAI) -> None:
    asked: Any = {"model": "chat", "messages": TELL, "max_tokens": 16, "logprobs": True, "top_logprobs": 1}
    for entry in content_of(client.chat.completions.create(**asked).choices[0]):
        assert entry["token"] == entry["top_logprobs"][0]["token"]


def test_a_sampled_call_is_valid_and_its_tokens_are_told(client: OpenAI) -> None:
    asked: Any = {
        **SAMPLED, "max_tokens": 64, "messages": ASK, "tools": [WEATHER], "tool_choice": "required", "logprobs": True
    }  # fmt: skip
    whole = client.chat.completions.create(**asked)
    [choice] = whole.choices
    assert choice.finish_reason == "tool_calls"
    assert all(valid(call) for call in choice.message.tool_calls or [])
    entries = content_of(choice)
    assert "get_weather" in "".join(entry["token"] for entry in entries)
    told = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        if chunk.choices[0].logprobs is not None:
            told += content_of(chunk.choices[0])
    assert told == entries
    assert whole.usage is not None
    assert whole.usage.completion_tokens - len(entries) in (0, 1)  # the token that ends the answer has no text


def test_a_seed_gives_a_completion_again(client: OpenAI) -> None:
    asked: Any = {**SAMPLED, "prompt": ["The capital of Norway is", "A fox is"], "logprobs": 2}
    first, second = (client.completions.create(**asked) for _ in range(2))
    for choice, again in zip(first.choices, second.choices, strict=True):
        told = choice.logprobs
        assert told is not None
        assert (choice.text, told) == (again.text, again.logprobs)
        assert told.tokens is not None
        assert told.text_offset is not None
        assert "".join(told.tokens) == choice.text
        assert all(
            choice.text[offset:].startswith(token) for token, offset in zip(told.tokens, told.text_offset, strict=True)
        )
        assert told.top_logprobs is not None
        assert all(token in top for token, top in zip(told.tokens, told.top_logprobs, strict=True))
    streamed: list[list[str]] = [[], []]
    offsets: list[list[int]] = [[], []]
    for chunk in client.completions.create(**asked, stream=True):
        [choice] = chunk.choices
        if choice.logprobs is not None:
            streamed[choice.index] += choice.logprobs.tokens or []
            offsets[choice.index] += choice.logprobs.text_offset or []
    assert [(choice.logprobs.tokens, choice.logprobs.text_offset) for choice in first.choices if choice.logprobs] == [
        *zip(streamed, offsets, strict=True)
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 17), ("best_of", 2), ("logprobs", 21), ("temperature", -1), ("temperature", True), ("echo", True)],
)
def test_what_cannot_be_had_of_a_completion(client: OpenAI, field: str, value: Any) -> None:
    body = {"logprobs": 1} | {field: value}
    for stream in (True, False):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="chat", prompt="A fox", stream=stream, extra_body=body)
        assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"), [("n", 17), ("best_of", 2), ("top_logprobs", 21), ("logprobs", 5), ("top_p", 0)]
)
def test_what_cannot_be_had_of_a_chat(client: OpenAI, field: str, value: Any) -> None:
    body = {"logprobs": True} | {field: value}
    for stream in (True, False):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="chat", messages=TELL, stream=stream, extra_body=body)
        assert caught.value.param == field
    with pytest.raises(openai.BadRequestError, match="logprobs"):
        client.chat.completions.create(model="chat", messages=TELL, top_logprobs=2)
