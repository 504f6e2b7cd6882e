"""From the events of a generation to a whole chat completion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heptagram_client import ChatMessage, ProtocolError, fold, split_choices
from heptagram_gateway.chat.envelope import Envelope, usage_of
from heptagram_gateway.chat.logprobs import Delta, TokenNotes
from heptagram_gateway.errors import from_client
from heptagram_wire.events import Event, Finish


def completion_of(envelope: Envelope, events: Sequence[Event], *, logprobs: bool = False) -> dict[str, Any]:
    """The body of all answers. A call that was cut by ``length`` is left out: it must not be run.

    Args:
        envelope: what stands around the choices.
        events: the whole generation.
        logprobs: they were asked for, so there is a list of them even where no token came.

    Raises:
        ApiError: 502, the events do not fit each other.
    """
    try:
        choices = [_choice(index, answer, logprobs) for index, answer in enumerate(split_choices(events))]
    except ProtocolError as error:
        raise from_client(error) from error
    finish = events[-1]
    assert isinstance(finish, Finish)
    return envelope.frame("chat.completion") | {"choices": choices} | usage_of(finish)


def _choice(index: int, events: Sequence[Event], logprobs: bool) -> dict[str, Any]:
    message = fold(events)
    notes = TokenNotes(logprobs=[] if logprobs else None)
    for event in events:
        if isinstance(event, Delta):
            notes.add(event)
    return {
        "index": index,
        "message": message_of(message),
        "finish_reason": message.finish_reason,
        **notes.fields(),
    }


def message_of(message: ChatMessage) -> dict[str, Any]:
    """The assistant message, fit to be sent back as a part of the next request."""
    answer = {**message.to_message(), "refusal": None}
    if "tool_calls" not in answer and answer["content"] is None:
        answer["content"] = ""
    if "reasoning_content" in answer:
        answer["reasoning"] = answer["reasoning_content"]
    return answer
