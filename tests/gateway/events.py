"""Event sequences of generations: right ones, and any at all."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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

_PIECES = st.one_of(
    st.builds(TextDelta, st.text(max_size=4)),
    st.builds(ReasoningDelta, st.text(max_size=4)),
    st.builds(Ping),
)
_INDEX = st.integers(0, 2)
_ANY = st.one_of(
    _PIECES,
    st.builds(CallStart, _INDEX, st.just("c"), st.just("f")),
    st.builds(ArgumentsDelta, _INDEX, st.text(max_size=4)),
    st.builds(CallEnd, _INDEX),
)
_FINISHES = st.builds(Finish, st.sampled_from(["stop", "length", "tool_calls"]), st.just(Usage(10, 7)))


@st.composite
def _call(draw: st.DrawFn) -> list[Any]:
    """The arguments of one call, in pieces."""
    text = '{"a": "' + draw(st.text(st.characters(categories=["L"]), max_size=6)) + '"}'
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """The events of a generation, as a server sends them, maybe cut inside a call."""
    events: list[Event] = []
    calls = 0
    for part in draw(st.lists(st.one_of(_PIECES, _call()), max_size=8)):
        if isinstance(part, list):
            events.append(CallStart(calls, f"call-{calls}", "f"))
            events += [ArgumentsDelta(calls, text) for text in part]
            events.append(CallEnd(calls))
            calls += 1
        else:
            events.append(part)
    reason: Any = "tool_calls" if calls else "stop"
    if draw(st.booleans()):
        reason = "length"
        if draw(st.booleans()):
            events += [CallStart(calls, f"call-{calls}", "f"), ArgumentsDelta(calls, '{"a"')]
    return [*events, Finish(reason, Usage(10, 7))]


@st.composite
def anything(draw: st.DrawFn) -> list[Event]:
    """Events in any order, with one ``finish`` at the end."""
    return [*draw(st.lists(_ANY, max_size=12)), draw(_FINISHES)]


def chunked(events: list[Event], cuts: list[int]) -> list[Event]:
    """The same answer where a server sends its texts in other pieces: each text is split at some of ``cuts``."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta):
            found += [_with(event, text) for text in _split(event.text, cuts)]
        else:
            found.append(event)
    return found


def _with(event: TextDelta | ReasoningDelta | ArgumentsDelta, text: str) -> Event:
    if isinstance(event, ArgumentsDelta):
        return ArgumentsDelta(event.index, text)
    return type(event)(text)


def _split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut for cut in cuts if cut < len(text)})
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
