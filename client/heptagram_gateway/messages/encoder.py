"""From events to those of a streamed message. No I/O.

::

    message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop

with ``ping`` between any two of them, and ``error`` instead of the rest. Only a call that was cut is not stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from heptagram_gateway.answer import sse
from heptagram_gateway.blocks import Block, Blocks, Closed, Ended, Grown, Opened, Step
from heptagram_gateway.errors import ApiError
from heptagram_gateway.messages.answer import STOP_REASONS, Head, empty_block, usage_counts
from heptagram_gateway.messages.errors import anthropic_error
from heptagram_wire.events import Event, Ping

_DELTAS: Final = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


class MessageEncoder:
    """One stream's."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._blocks = Blocks()

    def begin(self) -> Iterable[bytes]:
        yield _event("message_start", message=self._head.message())

    def feed(self, event: Event) -> Iterable[bytes]:
        if isinstance(event, Ping):
            yield _event("ping")
        if self._head.shows(event):
            for step in self._blocks.feed(event):
                yield from self._messages(step)

    def fail(self, error: ApiError) -> Iterable[bytes]:
        yield sse(anthropic_error(error), "error")

    def end(self) -> Iterable[bytes]:
        return ()

    def _messages(self, step: Step) -> Iterator[bytes]:
        match step:
            case Opened(block):
                yield _event("content_block_start", index=block.index, content_block=empty_block(block))
            case Grown(block, text):
                yield _event("content_block_delta", index=block.index, delta=_delta(block, text))
            case Closed(block):
                yield _event("content_block_stop", index=block.index)
            case Ended(finish):
                delta = {"stop_reason": STOP_REASONS[finish.reason], "stop_sequence": None}
                usage = usage_counts(self._head.input_tokens, finish.usage.completion_tokens)
                yield _event("message_delta", delta=delta, usage=usage)
                yield _event("message_stop")


def _delta(block: Block, text: str) -> dict[str, Any]:
    kind, key = _DELTAS[block.kind]
    return {"type": kind, key: text}


def _event(name: str, **data: Any) -> bytes:
    return sse({"type": name, **data}, name)
