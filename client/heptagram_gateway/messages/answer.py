"""The message object and its blocks, whole. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_client import ProtocolError, ToolCall
from heptagram_gateway.blocks import Block, Blocks, Ended
from heptagram_gateway.chat.envelope import usage_of
from heptagram_gateway.errors import from_client
from heptagram_wire.events import Event, Finish, ReasoningDelta

STOP_REASONS: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a message before its content. ``thinking`` is false where none must be shown."""

    model: str
    input_tokens: int
    thinking: bool = True
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")

    def message(self, content: Sequence[dict[str, Any]] = (), finish: Finish | None = None) -> dict[str, Any]:
        """The message object; without ``finish`` it has just begun."""
        message = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(content),
            "stop_reason": None if finish is None else STOP_REASONS[finish.reason],
            "stop_sequence": None,
            "usage": usage_counts(self.input_tokens, 0 if finish is None else finish.usage.completion_tokens),
        }
        return message if finish is None else {**message, "metrics": usage_of(finish)["metrics"]}

    def shows(self, event: Event) -> bool:
        return self.thinking or not isinstance(event, ReasoningDelta)


def usage_counts(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def empty_block(block: Block) -> dict[str, Any]:
    """A block as it begins."""
    if block.call is not None:
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": {}}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def whole_block(block: Block) -> dict[str, Any]:
    """A finished block.

    Raises:
        ApiError: 502, the arguments of a call are no JSON object.
    """
    made = empty_block(block)
    if block.call is None:
        made["thinking" if block.kind == "reasoning" else "text"] = block.text
        return made
    try:
        arguments = ToolCall(block.call.id, block.call.name, block.text).parse_arguments()
    except ProtocolError as error:
        raise from_client(error) from error
    return {**made, "input": arguments}


def message_of(head: Head, events: Iterable[Event]) -> dict[str, Any]:
    """The whole answer of a generation's events. A call that was cut is left out: it must not be run.

    Raises:
        ApiError: 502, the events do not fit each other.
    """
    blocks = Blocks()
    for event in filter(head.shows, events):
        for step in blocks.feed(event):
            if isinstance(step, Ended):
                return head.message([whole_block(block) for block in blocks.told], step.finish)
    raise AssertionError("a generation ends with `finish` or raises")
