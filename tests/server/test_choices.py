"""Several answers to one request, by the shipped models: straight from Triton, and by OpenAI's client."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from heptagram_client import ChatMessage, Client, fold_choices
from heptagram_wire.events import ChoiceEnd, Event, Finish, Start, TextDelta
from tests.server.completing import ask, tensors
from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served
from tests.server.test_chat import strict, valid
from tests.server.test_gateway import ASK, WEATHER
from tests.server.test_gateway import valid as valid_call

pytestmark = pytest.mark.server

SAMPLED: Any = {"temperature": 1.0, "top_p": 0.95, "seed": 11, "max_tokens": 20}
STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a fox."}]
ONE_CALL: Any = {"tool_choice": "required", "parallel_tool_calls": False, **SAMPLED, "max_tokens": 256}
CALLS: Any = {"model": "chat", "messages": ASK, "tools": [WEATHER], **ONE_CALL}


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url) as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def client(gateway: Gateway, shipped: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        yield client
    at_rest = shipped.settle()
    assert at_rest["kv_blocks_used"] == 0


def told(message: ChatMessage) -> Any:
    return message.content, [call.arguments for call in message.tool_calls], message.finish_reason, message.logprobs


def played(shipped: Served, request: Any) -> list[Event]:
    with shipped.chat(json.dumps(request)) as stream:
        return [event for response in stream.rest() for event in response.events]


@pytest.mark.parametrize("constrained", [True, False])
def test_each_is_what_it_is_alone_and_without_drafts(shipped: Served, constrained: bool) -> None:
    request = {**SAMPLED, "logprobs": True}
    request |= strict() | ONE_CALL if constrained else {"messages": STORY}
    before = shipped.settle()
    together = fold_choices(played(shipped, request | {"n": 3}))
    shipped.grown("request_success_total", before, 1)
    undrafted = fold_choices(played(shipped, request | {"n": 3, "heptagram": {"num_speculative_tokens": 0}}))
    assert [told(answer) for answer in together] == [told(answer) for answer in undrafted]
    for choice, answer in enumerate(together):
        [alone] = fold_choices(played(shipped, request | {"seed": 11 + choice}))
        assert told(answer) == told(alone)
        assert answer.usage == alone.usage
        if constrained:
            valid(answer)
    assert len({str(told(answer)) for answer in together}) > 1


def test_one_response_has_all(shipped: Served) -> None:
    streamed = fold_choices(played(shipped, {**SAMPLED, "messages": STORY, "n": 2}))
    whole = fold_choices(played(shipped, {**SAMPLED, "messages": STORY, "n": 2, "stream": False}))
    assert [told(answer) for answer in whole] == [told(answer) for answer in streamed]


def test_the_stream_starts_and_ends_once(shipped: Served) -> None:
    events = played(shipped, {**SAMPLED, "messages": STORY, "n": 3})
    assert [type(event) for event in events].count(Start) == 1
    assert sorted(event.choice for event in events if isinstance(event, ChoiceEnd)) == [0, 1, 2]
    finish = events[-1]
    assert isinstance(finish, Finish)
    ends = [event.completion_tokens for event in events if isinstance(event, ChoiceEnd)]
    assert finish.usage.completion_tokens == sum(ends)


def test_a_deadline_and_a_stop_end_all(shipped: Served) -> None:
    endless = {"messages": STORY, "max_tokens": 900, "ignore_eos": True, "n": 3}
    assert {answer.finish_reason for answer in fold_choices(
        played(shipped, endless | {"heptagram": {"deadline_ms": 700}})
    )} == {"deadline"}  # fmt: skip
    before = shipped.settle()
    with Client(shipped.grpc_url) as client, client.stream(endless) as events:
        next(event for event in events if isinstance(event, TextDelta))
    shipped.settle(5.0)
    shipped.grown("requests_cancelled_total", before, 1)


def test_triton_completions_side_by_side(shipped: Served) -> None:
    sampling = {**SAMPLED, "n": 2, "max_tokens": 12}

    def answered(**changes: Any) -> Any:
        asked = tensors(
            text_input="A fox", sampling_parameters=json.dumps(sampling | changes), return_num_output_tokens=True
        )
        return ask(shipped.grpc_url, asked)[0]

    answer = answered()
    alone = [answered(n=1, seed=11 + choice) for choice in (0, 1)]
    for name in ("text_output", "num_output_tokens"):
        assert answer[name] == [each[name] for each in alone]


def test_three_strict_calls(client: OpenAI) -> None:
    whole = client.chat.completions.create(**CALLS, n=3)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    for choice in whole.choices:
        assert choice.finish_reason == "tool_calls"
        assert all(valid_call(call) for call in choice.message.tool_calls or [])
    with client.chat.completions.stream(**CALLS, n=3, stream_options={"include_usage": True}) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
    texts = defaultdict[int, str](str)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += "".join(
                call.function.arguments or "" for call in choice.delta.tool_calls or () if call.function
            )
    assert [texts[place] for place in range(3)] == [
        "".join(call.function.arguments for call in choice.message.tool_calls or () if call.type == "function")
        for choice in whole.choices
    ]
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    alone = client.chat.completions.create(**CALLS)
    assert alone.usage is not None
    assert whole.usage.prompt_tokens == alone.usage.prompt_tokens
    assert alone.choices[0].message.tool_calls is not None
    assert texts[0] == "".join(
        call.function.arguments for call in alone.choices[0].message.tool_calls if call.type == "function"
    )


def test_completions_through_the_gateway(client: OpenAI) -> None:
    asked: Any = {"model": "chat", "prompt": ["A fox", "The sea"], "n": 2, **SAMPLED, "max_tokens": 12}
    whole = client.completions.create(**asked)
    texts = ["", "", "", ""]
    for chunk in client.completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert [choice.text for choice in whole.choices] == texts
    alone = client.completions.create(**asked | {"n": 1, "seed": 12})
    assert [choice.text for choice in alone.choices] == [texts[1], texts[3]]


def test_too_many(client: OpenAI) -> None:
    for n in (17, 10**6):
        with pytest.raises(openai.BadRequestError, match="16") as caught:
            client.chat.completions.create(model="chat", messages=STORY, n=n)
        assert (caught.value.param, caught.value.code) == ("n", "too_many_choices")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_leaving_at_any_time_leaves_nothing(
    client: OpenAI, gateway: Gateway, shipped: Served, stream: bool, reset: bool
) -> None:
    """https://github.com/sgl-project/sglang/pull/22273: while it compiles, waits, thinks, calls, and as it ends."""
    order = random.Random(61)
    before = shipped.settle()
    for number in range(12):
        body = json.dumps({**CALLS, "n": 2, "seed": number, "stream": stream}).encode()
        connection = socket.create_connection(gateway.address, timeout=20)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        for _ in range(number % 6 if stream else 0):
            connection.recv(256)
        time.sleep(order.random() * 0.2)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    after = shipped.settle()
    assert after["requests_cancelled_total"] > before["requests_cancelled_total"]
    assert after["requests_failed_total"] == before["requests_failed_total"]
    assert after["kv_blocks_used"] == 0
    answer = client.chat.completions.create(**CALLS, n=2)
    assert all(valid_call(call) for choice in answer.choices for call in choice.message.tool_calls or [])
