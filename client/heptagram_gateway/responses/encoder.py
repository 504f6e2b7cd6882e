"""From events to the typed events of a streamed response. No I/O.

::

    created in_progress item* (completed | incomplete | failed)
    item    = output_item.added (content_part.added text.delta* text.done content_part.done) output_item.done
            | output_item.added function_call_arguments.delta* function_call_arguments.done output_item.done

with ``output_text`` or ``reasoning_text`` for text. Only a call that was cut has no ``done``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from heptagram_gateway.answer import sse
from heptagram_gateway.blocks import Block, Blocks, Closed, Ended, Grown, Opened, Step
from heptagram_gateway.errors import ApiError
from heptagram_gateway.responses.response import Head, logprobs_of, part_of
from heptagram_wire.events import Event, TokenLogprob

_TEXT: Final = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "call": "response.function_call_arguments",
}


class ResponseEncoder:
    """One stream's."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._blocks = Blocks()
        self._number = 0

    def begin(self) -> Iterable[bytes]:
        response = self._head.response("in_progress")
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def feed(self, event: Event) -> Iterable[bytes]:
        for step in self._blocks.feed(event):
            yield from self._messages(step)

    def fail(self, error: ApiError) -> Iterable[bytes]:
        yield self._event("response.failed", response=self._head.failed(self._blocks, error))

    def end(self) -> Iterable[bytes]:
        return ()

    def _messages(self, step: Step) -> Iterator[bytes]:
        match step:
            case Opened(block):
                yield self._event("response.output_item.added", output_index=block.index, item=self._head.item(block))
                if block.call is None:
                    yield self._of_part("response.content_part.added", block, part=part_of(block.kind, ""))
            case Grown(block, text, logprobs):
                yield self._of_text("delta", block, logprobs, delta=text)
            case Closed(block):
                yield from self._close(block)
            case Ended(finish):
                response = self._head.finished(self._blocks, finish)
                yield self._event(f"response.{response['status']}", response=response)

    def _close(self, block: Block) -> Iterator[bytes]:
        if block.call is None:
            yield self._of_text("done", block, block.logprobs, text=block.text)
            yield self._of_part(
                "response.content_part.done", block, part=part_of(block.kind, block.text, block.logprobs)
            )
        else:
            yield self._of_text("done", block, (), arguments=block.text)
        yield self._event("response.output_item.done", output_index=block.index, item=self._head.item(block))

    def _of_text(self, what: str, block: Block, logprobs: Iterable[TokenLogprob], **data: Any) -> bytes:
        send = self._of_item if block.call else self._of_part
        told = {"logprobs": logprobs_of(logprobs)} if block.kind == "text" else {}
        return send(f"{_TEXT[block.kind]}.{what}", block, **data, **told)

    def _of_part(self, name: str, block: Block, **data: Any) -> bytes:
        return self._of_item(name, block, content_index=0, **data)

    def _of_item(self, name: str, block: Block, **data: Any) -> bytes:
        return self._event(name, item_id=self._head.item_id(block), output_index=block.index, **data)

    def _event(self, name: str, **data: Any) -> bytes:
        message = sse({"type": name, "sequence_number": self._number, **data}, name)
        self._number += 1
        return message
