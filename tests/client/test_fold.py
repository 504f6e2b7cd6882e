"""Events fold to one message, whatever the chunking; what does not fit is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_client import ChatMessage, GenerationError, ProtocolError, ToolCall, fold
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    Ping,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    UnknownEvent,
)
from tests.client.samples import CALL, START, TEXT

calls = st.builds(ToolCall, st.text(max_size=5), st.text(max_size=5), st.text(max_size=20), st.just(True))
messages = st.builds(
    ChatMessage,
    content=st.none() | st.text(min_size=1, max_size=20),
    reasoning=st.none() | st.text(min_size=1, max_size=20),
    tool_calls=st.lists(calls, max_size=4).map(tuple),
    finish_reason=st.sampled_from(["stop", "length"]),
    start=st.none() | st.just(START),
)


def chop(event: Event, size: int) -> list[Event]:
    """The same delta in pieces of ``size`` characters."""
    match event:
        case TextDelta(text=text):
            return [TextDelta(text[i : i + size]) for i in range(0, len(text), size)]
        case ReasoningDelta(text=text):
            return [ReasoningDelta(text[i : i + size]) for i in range(0, len(text), size)]
        case ArgumentsDelta(index=index, text=text):
            return [ArgumentsDelta(index, text[i : i + size]) for i in range(0, len(text), size)]
    return [event]


@given(messages, st.integers(1, 7))
def test_any_chunking_folds_to_the_same_message(message: ChatMessage, size: int) -> None:
    pieces = [piece for event in message.events() for piece in chop(event, size)]
    noisy = [item for piece in pieces for item in (Ping(), UnknownEvent("audio_delta"), piece)]
    assert fold(message.events()) == fold(pieces) == fold(noisy) == message


def test_text() -> None:
    message = fold(TEXT)
    assert (message.content, message.reasoning, message.tool_calls) == ("Hello", None, ())
    assert (message.finish_reason, message.usage.total_tokens, message.start) == ("stop", 12, START)


def test_a_call() -> None:
    message = fold(CALL)
    assert message.content is None
    assert message.reasoning == "list it"
    assert message.tool_calls == (ToolCall("call-0", "shell", '{"command": "ls"}'),)
    assert message.tool_calls[0].parse_arguments() == {"command": "ls"}
    assert message.to_message() == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "list it",
        "tool_calls": [
            {"id": "call-0", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
        ],
    }


def test_many_interleaved_calls_and_text() -> None:
    count = 50
    starts: list[Event] = [CallStart(n, f"id-{n}", f"tool_{n}") for n in range(count)]
    pieces: list[Event] = [
        event
        for character in range(2)
        for n in range(count)
        for event in (ArgumentsDelta(n, "{}"[character]), TextDelta("."))
    ]
    ends: list[Event] = [CallEnd(n) for n in reversed(range(count))]
    message = fold([*starts, *pieces, *ends, Finish("tool_calls")])
    assert message.content == "." * 2 * count
    assert [call.name for call in message.tool_calls] == [f"tool_{n}" for n in range(count)]
    assert {call.arguments for call in message.tool_calls} == {"{}"}


def test_a_cut_call_is_kept_but_not_sent_back() -> None:
    message = fold([CallStart(0, "a", "shell"), ArgumentsDelta(0, '{"comm'), Finish("length")])
    assert message.tool_calls == (ToolCall("a", "shell", '{"comm', complete=False),)
    assert message.to_message() == {"role": "assistant", "content": None}
    with pytest.raises(ProtocolError, match="no JSON object"):
        message.tool_calls[0].parse_arguments()


def test_log_probabilities_are_gathered_from_every_kind_of_delta() -> None:
    entries = [TokenLogprob(text, token, -0.5) for token, text in enumerate("abc")]
    events: list[Event] = [
        ReasoningDelta("a", logprobs=(entries[0],)),
        CallStart(0, "i", "f"),
        ArgumentsDelta(0, "{}", logprobs=(entries[1],)),
        CallEnd(0),
        TextDelta("", logprobs=(entries[2],)),
        Finish("tool_calls"),
    ]
    message = fold(events)
    assert message.logprobs == tuple(entries)
    assert message.content is None  # an empty text that only tells of tokens is none
    assert fold(message.events()) == message
    assert fold(TEXT).logprobs is None


def test_a_failure_is_raised() -> None:
    with pytest.raises(GenerationError, match=r"tools\[0\]: broken") as caught:
        fold([START, TextDelta("a"), Failure("internal", "broken", "tools[0]")])
    assert (caught.value.code, caught.value.message, caught.value.param) == ("internal", "broken", "tools[0]")


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START, TextDelta("a")],
        [Finish("stop"), Ping()],
        [Finish("stop"), Finish("stop")],
        [ArgumentsDelta(0, "{}"), Finish("stop")],
        [CallEnd(0), Finish("stop")],
        [CallStart(0, "a", "f"), CallStart(0, "b", "f"), Finish("stop")],
        [CallStart(0, "a", "f"), CallEnd(0), ArgumentsDelta(0, "{}"), Finish("tool_calls")],
        [CallStart(0, "a", "f"), Finish("tool_calls")],
        [Finish("tool_calls")],
    ],
)
def test_events_that_do_not_fit(events: list[Event]) -> None:
    with pytest.raises(ProtocolError):
        fold(events)
