"""Streams that the tests share."""

from __future__ import annotations

from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Ping,
    ReasoningDelta,
    Start,
    TextDelta,
    Usage,
)

REQUEST = {"messages": [{"role": "user", "content": "Show the current directory."}]}
START = Start("id-1", "chat", "1", prompt_tokens=10, max_tokens=100)
TEXT: list[Event] = [START, TextDelta("Hel"), Ping(), TextDelta("lo"), Finish("stop", Usage(10, 2))]
CALL: list[Event] = [
    START,
    ReasoningDelta("list it"),
    CallStart(0, "call-0", "shell"),
    ArgumentsDelta(0, '{"command": '),
    ArgumentsDelta(0, '"ls"}'),
    CallEnd(0),
    Finish("tool_calls", Usage(10, 12)),
]


def each_alone(events: list[Event]) -> list[list[Event]]:
    """One response an event."""
    return [[event] for event in events]
