"""From events to the chunks of a streamed chat completion. No I/O.

The role comes once, with the first piece of whatever kind; a call's id, type and name once, with empty arguments; each
chunk holds one piece of one kind, so no index stands in it twice. What is told of tokens that have no text yet comes
with the next chunk, the last one at the latest. Of several answers each has all this for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from heptagram_gateway.answer import sse
from heptagram_gateway.chat.envelope import Envelope, usage_of
from heptagram_gateway.chat.logprobs import Delta, TokenNotes
from heptagram_gateway.errors import ApiError, openai_error
from heptagram_wire.events import ArgumentsDelta, CallStart, ChoiceEnd, Event, Finish, ReasoningDelta, TextDelta

_DONE: Final = sse("[DONE]")


class ChunkEncoder:
    """One stream's. ``usage``: a last chunk without choices has it, and the others say ``usage: null``."""

    def __init__(self, envelope: Envelope, *, usage: bool) -> None:
        self._frame = envelope.frame("chat.completion.chunk") | ({"usage": None} if usage else {})
        self._usage = usage
        self._begun: set[int] = set()
        self._several = False
        self._untold: dict[int, TokenNotes] = {}

    def begin(self) -> Iterable[bytes]:
        return ()

    def feed(self, event: Event) -> Iterable[bytes]:
        match event:
            case TextDelta() | ReasoningDelta() | ArgumentsDelta():
                self._untold.setdefault(event.choice, TokenNotes()).add(event)
                if event.text:
                    yield self._piece(event.choice, _delta(event))
            case CallStart():
                function = {"name": event.name, "arguments": ""}
                call = {"index": event.index, "id": event.id, "type": "function", "function": function}
                yield self._piece(event.choice, {"tool_calls": [call]})
            case ChoiceEnd():
                self._several = True
                yield self._end(event)
            case Finish():
                if not self._several:
                    yield self._end(event)
                if self._usage:
                    yield sse({**self._frame, "choices": [], **usage_of(event)})

    def fail(self, error: ApiError) -> Iterable[bytes]:
        yield sse(openai_error(error))

    def end(self) -> Iterable[bytes]:
        yield _DONE

    def _end(self, event: ChoiceEnd | Finish) -> bytes:
        delta = {} if event.choice in self._begun else {"role": "assistant", "content": ""}
        return self._chunk(event.choice, delta, event.reason)

    def _piece(self, choice: int, delta: dict[str, Any]) -> bytes:
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", **delta}
        return self._chunk(choice, delta, None)

    def _chunk(self, choice: int, delta: dict[str, Any], reason: str | None) -> bytes:
        notes = self._untold.pop(choice, TokenNotes())
        entry = {"index": choice, "delta": delta, "finish_reason": reason, **notes.fields()}
        return sse({**self._frame, "choices": [entry]})


def _delta(event: Delta) -> dict[str, Any]:
    match event:
        case TextDelta():
            return {"content": event.text}
        case ReasoningDelta():
            return {"reasoning_content": event.text, "reasoning": event.text}
        case ArgumentsDelta():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
