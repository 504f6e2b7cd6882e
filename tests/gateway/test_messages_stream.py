"""A streamed message: every event is one of Anthropic's and in order; together they are the whole answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heptagram_gateway.errors import ApiError
from heptagram_gateway.messages.answer import Head, message_of
from heptagram_gateway.messages.encoder import MessageEncoder
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, Ping, TextDelta, Usage
from tests.client.samples import CALL, START, TEXT
from tests.gateway.events import answers, anything, chunked

HEAD = Head("chat", 10, id="msg_1")
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_LETTERS = {
    "message_start": "<",
    "content_block_start": "[",
    "content_block_delta": "d",
    "content_block_stop": "]",
    "message_delta": "D",
    "message_stop": ">",
    "error": "E",
}
_ORDER = re.compile(r"<(\[d*\])*(\[d*)?D>")
_FAILED = re.compile(r"<(\[d*\])*(\[d*)?E")


def read(text: str) -> list[Any]:
    """The events of a stream but its pings; each is named and valid to the anthropic package."""
    found = []
    for message in text.split("\n\n")[:-1]:
        name, data = message.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] not in ("ping", "error"):
            _EVENT.validate_python(event, strict=True)
        if event["type"] != "ping":
            found.append(event)
    return found


def encode(events: Iterable[Event], head: Head = HEAD) -> list[Any]:
    encoder = MessageEncoder(head)
    messages = [*encoder.begin()]
    try:
        for event in events:
            messages += encoder.feed(event)
    except ApiError as error:
        messages += encoder.fail(error)
    messages += encoder.end()
    return read(b"".join(messages).decode())


def spelled(events: Iterable[Any]) -> str:
    return "".join(_LETTERS[event["type"]] for event in events)


def rebuilt(events: Iterable[Any]) -> dict[str, Any]:
    """The message that a client puts together; a block without its stop is none."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                _grow(blocks[event["index"]], event["delta"])
            case "content_block_stop":
                message["content"].append(_finished(blocks[event["index"]]))
            case "message_delta":
                message = {**message, **event["delta"], "usage": event["usage"]}
    return message


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json"}[delta["type"]]
    block[key] += delta["partial_json" if key == "json" else key]


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    text = block.pop("json")
    return {**block, "input": json.loads(text)} if block["type"] == "tool_use" else block


def test_a_call() -> None:
    events = encode(CALL)
    assert spelled(events) == "<[d][dd]D>"
    assert events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert events[2]["delta"] == {"type": "thinking_delta", "thinking": "list it"}
    assert events[4] == {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "call-0", "name": "shell", "input": {}},
    }
    assert events[5]["delta"] == {"type": "input_json_delta", "partial_json": '{"command": '}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert message_of(HEAD, CALL)["content"][1]["input"] == {"command": "ls"}


def test_usage() -> None:
    events = encode(TEXT)
    assert events[0]["message"]["usage"]["input_tokens"] == 10
    assert events[-2]["usage"] == {
        "input_tokens": 10,
        "output_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    assert message_of(HEAD, TEXT)["usage"] == events[-2]["usage"]


@pytest.mark.parametrize(("reason", "told"), [("stop", "end_turn"), ("length", "max_tokens")])
def test_stop_reasons(reason: Any, told: str) -> None:
    assert message_of(HEAD, [START, TextDelta("a"), Finish(reason)])["stop_reason"] == told


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_cut_call_is_never_stopped(reason: Any) -> None:
    """A program that runs a finished block must not run half a call."""
    events = [START, *CALL[2:4], Finish(reason, Usage(1, 2))]
    assert spelled(encode(events)) == "<[dD>"
    assert message_of(HEAD, events)["content"] == []


def test_arguments_that_are_no_object_are_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        message_of(
            HEAD, [CallStart(0, "a", "f"), ArgumentsDelta(0, "[1]"), CallEnd(0), Finish("tool_calls", Usage(1, 2))]
        )
    assert caught.value.status == 502


def test_thinking_can_be_left_out() -> None:
    head = Head("chat", 10, thinking=False)
    assert spelled(encode(CALL, head)) == "<[dd]D>"
    assert [block["type"] for block in message_of(head, CALL)["content"]] == ["tool_use"]


def test_a_heartbeat_is_a_ping() -> None:
    assert list(MessageEncoder(HEAD).feed(Ping())) == [b'event: ping\ndata: {"type":"ping"}\n\n']


@given(answers(), st.lists(st.integers(1, 8), max_size=4))
def test_a_stream_holds_what_the_whole_answer_is(events: list[Event], cuts: list[int]) -> None:
    streamed = encode(events)
    assert _ORDER.fullmatch(spelled(streamed))
    whole = message_of(HEAD, events)
    Message.model_validate(whole, strict=True)
    del whole["metrics"]
    assert rebuilt(streamed) == whole
    assert rebuilt(encode(chunked(events, cuts))) == whole


@given(anything())
def test_any_events_give_a_valid_order(events: list[Event]) -> None:
    found = spelled(encode(events))
    assert _ORDER.fullmatch(found) or _FAILED.fullmatch(found)
