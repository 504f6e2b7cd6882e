"""A streamed chat: every chunk is one of OpenAI's, and the pieces come as clients expect them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from heptagram_client import fold
from heptagram_gateway.chat.chunks import ChunkEncoder
from heptagram_gateway.chat.envelope import Envelope
from heptagram_gateway.chat.message import completion_of, message_of
from heptagram_gateway.errors import ApiError
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    FinishReason,
    Ping,
    ReasoningDelta,
    Start,
    TextDelta,
    Usage,
)
from tests.client.samples import CALL, START, TEXT, each_alone
from tests.gateway.front import Running, data_of, joined, running
from tests.gateway.scripted import endless, play

ENVELOPE = Envelope("chatcmpl-1", "chat", "chat@1", created=1)
TWO_CALLS: list[Event] = [
    START,
    TextDelta("I will check both."),
    CallStart(0, "call-a", "get_weather"),
    ArgumentsDelta(0, '{"city": "Oslo"}'),
    CallEnd(0),
    CallStart(1, "call-b", "get_time"),
    ArgumentsDelta(1, '{"tz": '),
    ArgumentsDelta(1, '"CET"}'),
    CallEnd(1),
    Finish("tool_calls", Usage(10, 30)),
]


def encode(events: Iterable[Event], *, usage: bool = False) -> list[Any]:
    """What an encoder writes, without ``[DONE]``; each chunk is valid to the openai package."""
    encoder = ChunkEncoder(ENVELOPE, usage=usage)
    messages = [*encoder.begin()]
    for event in events:
        messages += encoder.feed(event)
    messages += encoder.end()
    chunks = data_of(b"".join(messages).decode())
    assert chunks.pop() == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return chunks


def deltas(chunks: Sequence[Any]) -> list[Any]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def test_a_call() -> None:
    """https://github.com/vllm-project/vllm/issues/16340: id, type and name once, then pieces of arguments alone."""
    assert deltas(encode(CALL)) == [
        {"role": "assistant", "reasoning_content": "list it", "reasoning": "list it"},
        {
            "tool_calls": [
                {"index": 0, "id": "call-0", "type": "function", "function": {"name": "shell", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"command": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"ls"}'}}]},
        {},
    ]


def test_two_calls() -> None:
    """https://github.com/earendil-works/pi/issues/8861: dense indices from 0, each call under its own."""
    chunks = encode(TWO_CALLS)
    assert deltas(chunks)[0] == {"role": "assistant", "content": "I will check both."}
    entries = [entry for delta in deltas(chunks) for entry in delta.get("tool_calls", ())]
    assert [entry["index"] for entry in entries] == [0, 0, 1, 1, 1]
    assert [entry["id"] for entry in entries if "id" in entry] == ["call-a", "call-b"]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [*[None] * (len(chunks) - 1), "tool_calls"]


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_finish_reasons(reason: FinishReason) -> None:
    [chunk] = encode([START, Finish(reason)])
    assert chunk["choices"][0]["finish_reason"] == reason
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_usage_only_when_asked() -> None:
    """https://github.com/vllm-project/vllm/pull/36379: one more chunk with empty choices; null in the others."""
    assert not any("usage" in chunk for chunk in encode(CALL))
    *others, last = encode(CALL, usage=True)
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 22}


def test_nothing_empty() -> None:
    chunks = encode(
        [START, Ping(), TextDelta(""), ReasoningDelta(""), Ping(), *CALL[2:4], ArgumentsDelta(0, ""), CALL[-1]]
    )
    assert [list(delta) for delta in deltas(chunks)] == [["role", "tool_calls"], ["tool_calls"], []]


def test_token_ids() -> None:
    chunks = encode([START, TextDelta("a", (5, 6)), TEXT[-1]])
    assert [choice.get("token_ids") for chunk in chunks for choice in chunk["choices"]] == [[5, 6], None]


def test_line_ends_that_only_python_knows_are_escaped() -> None:
    encoder = ChunkEncoder(ENVELOPE, usage=False)
    text = "a\u2028b\u2029c\x85d\ne\rf"
    [message] = encoder.feed(TextDelta(text))
    assert message.decode().splitlines() == message.decode().split("\n")[:-1]
    assert data_of(message.decode())[0]["choices"][0]["delta"]["content"] == text


_PIECES = st.one_of(
    st.builds(TextDelta, st.text(max_size=5)),
    st.builds(ReasoningDelta, st.text(max_size=5)),
    st.builds(Ping),
)


@given(st.lists(_PIECES, max_size=8), st.lists(st.lists(st.text(max_size=4), max_size=3), max_size=3), st.randoms())
def test_a_stream_holds_what_the_whole_answer_holds(
    pieces: list[Event], calls: list[list[str]], order: random.Random
) -> None:
    events: list[Event] = [*pieces]
    for index, texts in enumerate(calls):
        events += [CallStart(index, f"c{index}", "f"), *(ArgumentsDelta(index, text) for text in texts), CallEnd(index)]
    events.append(Finish("tool_calls" if calls else "stop", Usage(1, 2)))
    whole = completion_of(ENVELOPE, events)
    ChatCompletion.model_validate(whole, strict=True)
    message = whole["choices"][0]["message"]
    streamed = deltas(encode(events))
    assert [delta["role"] for delta in streamed if "role" in delta] == ["assistant"]
    assert "".join(delta.get("content") or "" for delta in streamed) == (message["content"] or "")
    assert "".join(delta.get("reasoning") or "" for delta in streamed) == message.get("reasoning", "")
    rebuilt: dict[int, list[str]] = {}
    for delta in streamed:
        for entry in delta.get("tool_calls", ()):
            rebuilt.setdefault(entry["index"], []).append(entry["function"]["arguments"])
    assert ["".join(texts) for texts in rebuilt.values()] == [
        call["function"]["arguments"] for call in message.get("tool_calls", ())
    ]


def test_a_cut_call_is_not_in_a_whole_answer() -> None:
    """A program must not run it; the reason tells why nothing is there."""
    whole = completion_of(ENVELOPE, [START, *CALL[2:4], Finish("length", Usage(1, 2))])
    assert whole["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in whole["choices"][0]["message"]


def test_tool_calls_without_a_call_are_an_error() -> None:
    """https://github.com/vllm-project/vllm/issues/53255"""
    with pytest.raises(ApiError) as caught:
        completion_of(ENVELOPE, [START, Finish("tool_calls")])
    assert caught.value.status == 502


def test_a_message_can_be_sent_back() -> None:
    message = message_of(fold(CALL))
    assert message["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command": "ls"}'}
    assert message_of(fold([Finish("stop")]))["content"] == ""


def test_over_http(front: Running) -> None:
    front.server.script = play(*each_alone(CALL))
    answer = front.post(stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    chunks = data_of(answer.text)
    assert chunks[-1] == "[DONE]"
    assert joined(chunks, "reasoning") == "list it"
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1
    whole = front.post().json()
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert front.server.requests[0] == ("chat", {"messages": [{"role": "user", "content": "Hello"}], "stream": True})
    assert START.id not in answer.text  # it could stop the request


def test_a_silent_stream_gets_comments() -> None:
    script = endless([START], repeat=Ping())
    with (
        running(script, keep_alive=0.05) as front,
        front.http() as client,
        client.stream("POST", "/v1/chat/completions", json=_BODY) as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines), next(lines), next(lines)] == [": keep-alive", "", ": keep-alive"]


def test_headers_wait_for_start(front: Running) -> None:
    front.server.script = play(0.3, [START], [TEXT[-1]])
    with front.connect() as client:
        client.sendall(_raw())
        client.settimeout(0.15)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(10)
        assert client.recv(12) == b"HTTP/1.1 200"


_BODY = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "stream": True}


def _raw() -> bytes:
    body = b'{"messages": [{"role": "user", "content": "x"}], "stream": true}'
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_start_is_not_an_event_of_the_stream() -> None:
    assert isinstance(START, Start)
    assert encode([START, TEXT[-1]]) == encode([TEXT[-1]])
