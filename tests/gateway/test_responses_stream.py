"""A streamed response: every event is one of OpenAI's, numbered and in order, and ends as the whole answer does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from heptagram_gateway.errors import ApiError
from heptagram_gateway.responses.encoder import ResponseEncoder
from heptagram_gateway.responses.response import Head, response_of
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Ping,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from tests.client.samples import CALL, START, TEXT
from tests.gateway.events import answers, anything, chunked
from tests.gateway.test_chat_logprobs import SMILE, token

HEAD = Head("chat", {}, {}, key="k", created=1)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_LETTERS = {
    "response.created": "<",
    "response.in_progress": "-",
    "response.output_item.added": "[",
    "response.content_part.added": "(",
    "response.output_text.delta": "t",
    "response.reasoning_text.delta": "r",
    "response.function_call_arguments.delta": "a",
    "response.output_text.done": "T",
    "response.reasoning_text.done": "R",
    "response.function_call_arguments.done": "A",
    "response.content_part.done": ")",
    "response.output_item.done": "]",
    "response.completed": "C",
    "response.incomplete": "I",
    "response.failed": "F",
}
_ITEMS = r"(?:\[\(t+T\)\]|\[\(r+R\)\]|\[a*A\])*"
_ORDER = re.compile(rf"<-{_ITEMS}(?:C|(?:\[a*)?[IC])")
_FAILED = re.compile(rf"<-{_ITEMS}(?:\[\(t+|\[\(r+|\[a*)?F")


def read(text: str) -> list[Any]:
    """The events of a stream; each is named, valid to the openai package and numbered."""
    found = []
    for message in text.split("\n\n")[:-1]:
        if message.startswith(":"):
            continue
        name, data = message.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        _EVENT.validate_python(event, strict=True)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert {event["response"]["id"] for event in found if "response" in event} == {found[0]["response"]["id"]}
    return found


def encode(events: Iterable[Event], head: Head = HEAD) -> list[Any]:
    encoder = ResponseEncoder(head)
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


def merged(events: Iterable[Any]) -> list[Any]:
    """Without numbers, and with the deltas of one item in one."""
    found: list[Any] = []
    for event in events:
        event = {key: value for key, value in event.items() if key != "sequence_number"}
        if "delta" in event and found and found[-1]["type"] == event["type"]:
            found[-1] = {**event, "delta": found[-1]["delta"] + event["delta"]}
        else:
            found.append(event)
    return found


def test_the_letters_are_of_openais_events() -> None:
    [union, *_] = get_args(ResponseStreamEvent)
    known = {get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(union)}
    assert set(_LETTERS) <= known


def test_a_call() -> None:
    events = encode(CALL)
    assert spelled(events) == "<-[(rR)][aaA]C"
    added = events[8]
    assert added["item"] == {
        "type": "function_call",
        "id": "fc_k01",
        "call_id": "call-0",
        "name": "shell",
        "arguments": "",
        "status": "in_progress",
    }
    assert [event["delta"] for event in events[9:11]] == ['{"command": ', '"ls"}']
    assert events[11]["arguments"] == '{"command": "ls"}'
    assert events[12]["item"] == {**added["item"], "arguments": '{"command": "ls"}', "status": "completed"}
    reasoning, call = events[-1]["response"]["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "list it"}]
    assert call == events[12]["item"]


def test_a_text() -> None:
    events = encode(TEXT)
    assert spelled(events) == "<-[(ttT)]C"
    last = events[-1]["response"]
    assert Response.model_validate(last).output_text == "Hello"
    assert (last["status"], last["incomplete_details"], last["store"]) == ("completed", None, False)
    assert last["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    assert events[0]["response"]["usage"] is None


def test_length() -> None:
    last = encode([START, TextDelta("a"), Finish("length", Usage(1, 2))])[-1]["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert last["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_cut_call_is_never_told_to_be_done(reason: Any) -> None:
    """A program that runs what ``output_item.done`` brings must not run half a call."""
    events = encode([START, *CALL[2:4], Finish(reason, Usage(1, 2))])
    assert spelled(events) == "<-[aI"
    assert events[-1]["response"]["output"] == []
    whole = response_of(HEAD, [START, *CALL[2:4], Finish(reason, Usage(1, 2))])
    assert (whole["status"], whole["output"]) == ("incomplete", [])


def test_a_failure() -> None:
    encoder = ResponseEncoder(HEAD)
    messages = [*encoder.begin(), *encoder.feed(TextDelta("a")), *encoder.fail(ApiError(504, "too late", "deadline"))]
    [*_, last] = read(b"".join([*messages, *encoder.end()]).decode())
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["message"] == "too late"
    assert last["response"]["output"] == []


def test_names_of_namespaces() -> None:
    head = Head("chat", {}, {"crm::find": ("crm", "find")}, key="k", created=1)
    events: list[Event] = [
        START,
        CallStart(0, "a", "crm::find"),
        ArgumentsDelta(0, "{}"),
        CallEnd(0),
        Finish("tool_calls"),
    ]
    [item] = encode(events, head)[-1]["response"]["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")


def test_log_probabilities_of_a_text() -> None:
    """Each delta tells its tokens'; what is done tells all, with those that had no text."""
    events: list[Event] = [
        START,
        TextDelta("He", logprobs=(SMILE,)),
        TextDelta("llo", logprobs=(token(1),)),
        TextDelta("", logprobs=(token(2),)),
        Finish("stop"),
    ]
    smile, first, _ = expected = [
        {
            "token": "\ufffd",
            "bytes": [240, 159],
            "logprob": -0.5,
            "top_logprobs": [
                {"token": "\ufffd", "bytes": [240, 159], "logprob": -0.5},
                {"token": "", "bytes": [], "logprob": -1.0},
            ],
        },
        *({"token": f"t{n}", "bytes": [116, 48 + n], "logprob": -n / 8, "top_logprobs": []} for n in (1, 2)),
    ]
    streamed = encode(events)
    assert [event["logprobs"] for event in streamed if "delta" in event] == [[smile], [first]]
    assert [event["logprobs"] for event in streamed if event["type"] == "response.output_text.done"] == [expected]
    assert [event["part"]["logprobs"] for event in streamed if "part" in event] == [[], expected]
    whole = streamed[-1]["response"]
    assert whole["output"][0]["content"][0]["logprobs"] == expected
    Response.model_validate(whole, strict=True)


@given(answers(), st.data())
def test_every_token_of_a_text_is_told_once(events: list[Event], data: st.DataObject) -> None:
    """Whatever comes between, and never those of reasoning and calls."""
    count, texts, open_text = 0, [], False
    told: list[Event] = []
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta):
            event = replace(event, logprobs=(token(count),) * data.draw(st.integers(0, 2)))
            if isinstance(event, TextDelta) and (event.text or open_text):
                open_text = True
                texts += [f"t{count}"] * len(event.logprobs or ())
            elif event.text:
                open_text = False
            count += 1
        elif isinstance(event, CallStart):
            open_text = False
        told.append(event)
    streamed = encode(told)
    parts = [part for item in streamed[-1]["response"]["output"] for part in item.get("content", ())]
    assert [entry["token"] for part in parts for entry in part.get("logprobs", ())] == texts
    assert streamed[-1]["response"] == json.loads(json.dumps(response_of(HEAD, told)))
    assert not any(event.get("logprobs") for event in streamed if "output_text" not in event["type"])


def test_nothing_for_a_heartbeat() -> None:
    assert list(ResponseEncoder(HEAD).feed(Ping())) == []


@given(answers(), st.lists(st.integers(1, 8), max_size=4))
def test_a_stream_ends_with_what_the_whole_answer_is(events: list[Event], cuts: list[int]) -> None:
    streamed = encode(events)
    assert _ORDER.fullmatch(spelled(streamed))
    whole = json.loads(json.dumps(response_of(HEAD, events)))
    Response.model_validate(whole, strict=True)
    assert streamed[-1]["response"] == whole
    assert merged(encode(chunked(events, cuts))) == merged(streamed)
    done = [event["item"] for event in streamed if event["type"] == "response.output_item.done"]
    assert done == whole["output"]


@given(anything())
def test_any_events_give_a_valid_order(events: list[Event]) -> None:
    found = spelled(encode(events))
    assert _ORDER.fullmatch(found) or _FAILED.fullmatch(found)
