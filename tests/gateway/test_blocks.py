"""Any events give blocks in order, or an error; those of a server never give an error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given

from heptagram_client import fold
from heptagram_gateway.blocks import Blocks, BlockState, Closed, Ended, Grown, Opened, Step
from heptagram_gateway.errors import ApiError
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, ReasoningDelta, TextDelta
from tests.client.samples import CALL, START
from tests.gateway.events import answers, anything

LETTERS = {Opened: "O", Grown: "g", Closed: "C", Ended: "E"}


def steps(events: Iterable[Event], blocks: Blocks) -> list[Step]:
    return [step for event in events for step in blocks.feed(event)]


def spelled(found: Iterable[Step]) -> str:
    return "".join(LETTERS[type(step)] for step in found)


@given(answers())
def test_the_blocks_of_an_answer(events: list[Event]) -> None:
    blocks = Blocks()
    found = steps(events, blocks)
    assert re.fullmatch(r"(Og*C)*(Og*)?E", spelled(found))
    message = fold(events)
    told = blocks.told
    assert "".join(block.text for block in told if block.kind == "text") == (message.content or "")
    assert "".join(block.text for block in told if block.kind == "reasoning") == (message.reasoning or "")
    assert [(block.call.id, block.text) for block in told if block.call] == [
        (call.id, call.arguments) for call in message.tool_calls if call.complete
    ]
    assert [block.index for block in blocks.all] == list(range(len(blocks.all)))
    assert all(before.kind != after.kind or before.call for before, after in pairwise(told))


@given(anything())
def test_any_events(events: list[Event]) -> None:
    blocks = Blocks()
    found: list[Step] = []
    try:
        for event in events:
            found += blocks.feed(event)
    except ApiError as error:
        assert error.status == 502  # noqa: PT017 (either way is right)
        assert re.fullmatch(r"(Og*C)*(Og*)?", spelled(found))
    else:
        assert re.fullmatch(r"(Og*C)*(Og*)?E", spelled(found))
        assert all(block.state is not BlockState.OPEN for block in blocks.all)


@pytest.mark.parametrize(
    "events",
    [
        [ArgumentsDelta(0, "{}")],
        [CallEnd(0)],
        [CallStart(0, "a", "f"), ArgumentsDelta(1, "{}")],
        [CallStart(0, "a", "f"), CallEnd(1)],
        [CallStart(0, "a", "f"), CallEnd(0), ArgumentsDelta(0, "{}")],
        [CallStart(0, "a", "f"), CallEnd(0), CallStart(0, "b", "f")],
        [CallStart(0, "a", "f"), CallStart(1, "b", "f")],
        [CallStart(0, "a", "f"), TextDelta("x")],
        [CallStart(0, "a", "f"), ReasoningDelta("x")],
        [Finish("tool_calls")],
        [TextDelta("x"), Finish("tool_calls")],
        [CallStart(0, "a", "f"), Finish("tool_calls")],
    ],
)
def test_what_does_not_fit_is_an_error(events: list[Event]) -> None:
    with pytest.raises(ApiError) as caught:
        steps(events, Blocks())
    assert caught.value.status == 502


def test_a_cut_call_is_never_closed() -> None:
    blocks = Blocks()
    assert spelled(steps([START, *CALL[2:4], Finish("length")], blocks)) == "OgE"
    assert blocks.cut
    assert not blocks.told


def test_a_cut_text_is_closed_and_told() -> None:
    blocks = Blocks()
    assert spelled(steps([TextDelta("a"), Finish("length")], blocks)) == "OgCE"
    assert [block.state for block in blocks.told] == [BlockState.CUT]
