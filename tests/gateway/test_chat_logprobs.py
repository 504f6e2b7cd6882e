"""Log probabilities of a chat: OpenAI's types, every token once, streamed as whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from heptagram_client.errors import reported_error
from heptagram_gateway.chat.message import completion_of
from heptagram_wire.errors import WireError
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    TopLogprob,
)
from tests.client.samples import START, TEXT, each_alone
from tests.gateway.events import answers
from tests.gateway.front import Running
from tests.gateway.scripted import ScriptedServer, play
from tests.gateway.test_chat_stream import ENVELOPE, encode
from tests.gateway.test_errors import error_of

SMILE = TokenLogprob(
    "\ufffd", 9, -0.5, (240, 159), (TopLogprob("\ufffd", 9, -0.5, (240, 159)), TopLogprob("", 2, -1.0))
)


def token(number: int) -> TokenLogprob:
    return TokenLogprob(f"t{number}", number, -number / 8, (116, number % 10 + 48))


def pieces(chunks: Sequence[Any]) -> list[Any]:
    """The ``logprobs`` of each chunk's choice."""
    return [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]


def told(chunks: Sequence[Any]) -> list[Any]:
    return [entry for logprobs in pieces(chunks) if logprobs for entry in logprobs["content"]]


def whole_of(events: Sequence[Event], *, logprobs: bool = False) -> Any:
    whole = completion_of(ENVELOPE, events, logprobs=logprobs)
    ChatCompletion.model_validate(whole | {"choices": _lists(whole["choices"])}, strict=True)
    return _lists(whole["choices"][0])


def _lists(value: Any) -> Any:
    """As JSON has it: tuples are lists there."""
    if isinstance(value, dict):
        return {key: _lists(entry) for key, entry in value.items()}
    return [_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def test_an_entry_is_openais() -> None:
    expected = {
        "content": [
            {
                "token": "\ufffd",
                "logprob": -0.5,
                "bytes": [240, 159],
                "top_logprobs": [
                    {"token": "\ufffd", "logprob": -0.5, "bytes": [240, 159]},
                    {"token": "", "logprob": -1.0, "bytes": None},
                ],
            }
        ],
        "refusal": None,
    }
    events: list[Event] = [START, TextDelta("x", logprobs=(SMILE,)), TEXT[-1]]
    assert whole_of(events, logprobs=True)["logprobs"] == expected
    assert pieces(encode(events)) == [expected, None]


def test_null_when_not_asked_and_a_list_when_asked() -> None:
    assert whole_of(TEXT)["logprobs"] is None
    assert pieces(encode(TEXT)) == [None, None, None]
    assert whole_of([Finish("stop")], logprobs=True)["logprobs"] == {"content": [], "refusal": None}


def test_tokens_without_text_wait_for_the_next_chunk() -> None:
    """https://github.com/vllm-project/vllm/issues/37737: a token whose text is held back still is in the answer."""
    events: list[Event] = [
        START,
        TextDelta("", (1,), (token(1),)),
        CallStart(0, "c", "f"),
        ArgumentsDelta(0, "{}", (2, 3), (token(2), token(3))),
        CallEnd(0),
        TextDelta("", (4,), (token(4),)),
        Finish("tool_calls"),
    ]
    chunks = encode(events)
    assert [choice.get("token_ids") for chunk in chunks for choice in chunk["choices"]] == [[1], [2, 3], [4]]
    names = [[entry["token"] for entry in logprobs["content"]] for logprobs in pieces(chunks)]
    assert names == [["t1"], ["t2", "t3"], ["t4"]]
    assert chunks[-1]["choices"][0] | {"logprobs": None, "token_ids": None} == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls", "token_ids": None
    }  # fmt: skip
    assert whole_of(events)["token_ids"] == [1, 2, 3, 4]


def test_reasoning_and_calls_are_told_too() -> None:
    """https://github.com/sgl-project/sglang/issues/26778 and 28456: not only the content's."""
    events: list[Event] = [
        ReasoningDelta("a", logprobs=(token(1),)),
        TextDelta("b", logprobs=(token(2),)),
        CallStart(0, "c", "f"),
        ArgumentsDelta(0, "{}", logprobs=(token(3),)),
        CallEnd(0),
        Finish("tool_calls"),
    ]
    assert [bool(logprobs) for logprobs in pieces(encode(events))] == [True, True, False, True, False]
    assert [entry["token"] for entry in told(encode(events))] == ["t1", "t2", "t3"]


@given(answers(), st.data())
def test_every_token_once_streamed_as_whole(events: list[Event], data: st.DataObject) -> None:
    count = 0
    told_events: list[Event] = []
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta) and data.draw(st.booleans()):
            more = data.draw(st.integers(1, 3))
            numbers = range(count, count + more)
            event = replace(event, logprobs=tuple(map(token, numbers)), token_ids=tuple(numbers))
            count += more
        told_events.append(event)
    whole = whole_of(told_events, logprobs=True)
    chunks = encode(told_events)
    assert [entry["token"] for entry in whole["logprobs"]["content"]] == [f"t{number}" for number in range(count)]
    assert told(chunks) == whole["logprobs"]["content"]
    ids = [id for chunk in chunks for choice in chunk["choices"] for id in choice.get("token_ids", ())]
    assert ids == whole.get("token_ids", []) == [*range(count)]


def test_openais_client(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone([START, TextDelta("Hel", logprobs=(token(1), SMILE)), TextDelta("lo"), TEXT[-1]]))
    hello: Any = [{"role": "user", "content": "Hello"}]
    with front.openai() as client:
        asked: Any = {"model": "chat", "messages": hello, "logprobs": True, "top_logprobs": 2}
        whole = client.chat.completions.create(**asked).choices[0]
        with client.chat.completions.stream(**asked) as stream:
            final = stream.get_final_completion().choices[0]
    assert server.requests[0][1] == {"messages": hello, "logprobs": True, "top_logprobs": 2, "stream": True}
    for choice in (whole, final):
        assert choice.message.content == "Hello"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [entry.token for entry in choice.logprobs.content] == ["t1", "\ufffd"]
        assert [top.bytes for top in choice.logprobs.content[1].top_logprobs] == [[240, 159], None]
        assert choice.logprobs.content[1].bytes == [240, 159]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("field", "value"), [("n", 2), ("top_logprobs", 21)])
def test_what_the_backend_refuses_is_a_status(
    front: Running, server: ScriptedServer, field: str, value: int, stream: bool
) -> None:
    server.script = play(reported_error(WireError("unsupported", "what to do", field)))
    body: dict[str, Any] = {field: value, "stream": stream}
    answer = front.post(**body)
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == (field, "unsupported")
    assert server.requests[0][1][field] == value
