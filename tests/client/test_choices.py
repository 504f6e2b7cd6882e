"""Several answers in one stream: each folds as if it had come alone, however they are mixed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_client import AsyncClient, ChatMessage, Client, GenerationError, ProtocolError, fold_choices
from heptagram_client.transports.memory import InProcessTransport
from heptagram_client.transports.threaded import ThreadedTransport
from heptagram_wire.events import CallStart, ChoiceEnd, Event, Failure, Finish, Ping, Start, TextDelta, Usage
from tests.client.samples import CALL, REQUEST, START, TEXT
from tests.client.test_client import Handler
from tests.client.test_fold import messages

END = Finish("stop", Usage(10, 9))
SEVERAL: list[Event] = [
    START,
    TextDelta("a"),
    TextDelta("c", choice=1),
    CallStart(0, "call-0", "f", choice=2),
    Ping(choice=1),
    TextDelta("b"),
    ChoiceEnd("length", 4, choice=2),
    ChoiceEnd("stop", 2, choice=0),
    TextDelta("d", choice=1),
    ChoiceEnd("stop", 3, choice=1),
    END,
]


def mixed(answers: list[ChatMessage], order: random.Random) -> list[Event]:
    """The stream of these answers, the events of each in their order."""
    lines: list[list[Event]] = []
    for choice, answer in enumerate(answers):
        own = [event for event in answer.events() if not isinstance(event, Start | Finish)]
        lines.append([*(replace(event, choice=choice) for event in own), ChoiceEnd(answer.finish_reason, 3, choice)])
    events: list[Event] = [START]
    while lines:
        line = order.choice(lines)
        events.append(line.pop(0))
        lines = [line for line in lines if line]
    return [*events, END]


@given(st.lists(messages, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_however_they_are_mixed(answers: list[ChatMessage], order: random.Random) -> None:
    expected = [replace(answer, start=START, usage=Usage(10, 3)) for answer in answers]
    assert fold_choices(mixed(answers, order)) == tuple(expected)


@pytest.mark.parametrize("events", [TEXT, CALL])
def test_one_answer_is_what_it_is(events: list[Event]) -> None:
    [message] = fold_choices(events)
    assert message.start == START
    assert message.usage.prompt_tokens == 10


def test_a_call_that_was_cut_in_one_of_them() -> None:
    first, second, third = fold_choices(SEVERAL)
    assert (first.content, second.content, third.content) == ("ab", "cd", None)
    assert [call.complete for call in third.tool_calls] == [False]
    assert [message.usage.completion_tokens for message in (first, second, third)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([*SEVERAL[:-1], Failure("internal", "broken")], GenerationError),
        (SEVERAL[:-1], ProtocolError),
        ([*SEVERAL[:-2], END], ProtocolError),
        ([*SEVERAL[:-1], TextDelta("late"), END], ProtocolError),
        ([*SEVERAL, Ping()], ProtocolError),
    ],
    ids=["failure", "no end", "an answer without end", "behind an answer's end", "behind the end"],
)
def test_what_does_not_fit(events: list[Event], error: type[Exception]) -> None:
    with pytest.raises(error):
        fold_choices(events)


def complete_sync() -> tuple[ChatMessage, ...]:
    with Client(transport=InProcessTransport(Handler(SEVERAL))) as client:
        with pytest.raises(ProtocolError, match="complete_choices"):
            client.complete(REQUEST | {"n": 3})
        return client.complete_choices(REQUEST | {"n": 3})


def complete_async() -> tuple[ChatMessage, ...]:
    async def run() -> tuple[ChatMessage, ...]:
        async with AsyncClient(transport=ThreadedTransport(InProcessTransport(Handler(SEVERAL)))) as client:
            with pytest.raises(ProtocolError, match="complete_choices"):
                await client.complete(REQUEST | {"n": 3})
            return await client.complete_choices(REQUEST | {"n": 3})

    return asyncio.run(run())


@pytest.mark.parametrize("complete", [complete_sync, complete_async], ids=["sync", "asyncio"])
def test_a_client_gives_all(complete: Callable[[], tuple[ChatMessage, ...]]) -> None:
    assert complete() == fold_choices(SEVERAL)
