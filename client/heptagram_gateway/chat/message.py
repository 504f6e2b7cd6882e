"""From the events of a generation to a whole chat completion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from heptagram_client import ChatMessage, ProtocolError, fold
from heptagram_gateway.chat.envelope import Envelope, usage_of
from heptagram_gateway.errors import from_client
from heptagram_wire.events import ArgumentsDelta, Event, Finish, ReasoningDelta, TextDelta


def completion_of(envelope: Envelope, events: Sequence[Event]) -> dict[str, Any]:
    """The answer's body. A call that was cut by ``length`` is left out: it must not be run.

    Raises:
        ApiError: 502, the events do not fit each other.
    """
    try:
        message = fold(events)
    except ProtocolError as error:
        raise from_client(error) from error
    finish = events[-1]
    assert isinstance(finish, Finish)
    choice: dict[str, Any] = {
        "index": finish.choice,
        "message": message_of(message),
        "logprobs": None,
        "finish_reason": message.finish_reason,
    }
    token_ids = _token_ids(events)
    if token_ids is not None:
        choice["token_ids"] = token_ids
    return envelope.frame("chat.completion") | {"choices": [choice]} | usage_of(finish)


def message_of(message: ChatMessage) -> dict[str, Any]:
    """The assistant message, fit to be sent back as a part of the next request."""
    answer = {**message.to_message(), "refusal": None}
    if "tool_calls" not in answer and answer["content"] is None:
        answer["content"] = ""
    if "reasoning_content" in answer:
        answer["reasoning"] = answer["reasoning_content"]
    return answer


def _token_ids(events: Sequence[Event]) -> list[int] | None:
    found = [
        event.token_ids
        for event in events
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta) and event.token_ids is not None
    ]
    return list(chain.from_iterable(found)) if found else None
