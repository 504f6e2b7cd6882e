"""From the events of one request to one assistant message."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from heptagram_client.errors import GenerationError, ProtocolError
from heptagram_wire.errors import WireError
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    FinishReason,
    ReasoningDelta,
    Start,
    Stats,
    TextDelta,
    TokenLogprob,
    Usage,
)
from heptagram_wire.requests import MessageCall


@dataclass(frozen=True, slots=True)
class ToolCall:
    """``arguments`` is JSON text; it is cut where ``complete`` is false (the run ended inside the call)."""

    id: str
    name: str
    arguments: str
    complete: bool = True

    def parse_arguments(self) -> dict[str, Any]:
        """The arguments as a Python object.

        Raises:
            ProtocolError: they are not a JSON object, which a complete call's always are.
        """
        try:
            value = json.loads(self.arguments)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ProtocolError(f"the arguments of call {self.name!r} are no JSON object: {self.arguments:.200}")
        return value


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A finished answer. ``start`` is absent where the request had ``stream`` false, ``logprobs`` where it did not ask
    for them; they cover every token, those of reasoning and calls included."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    stats: Stats = field(default_factory=Stats)
    start: Start | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None

    def events(self) -> Iterator[Event]:
        """The shortest stream that folds to this message, for those who show or resend it."""
        if self.start is not None:
            yield self.start
        if self.logprobs:
            yield TextDelta("", logprobs=self.logprobs)
        if self.reasoning is not None:
            yield ReasoningDelta(self.reasoning)
        if self.content is not None:
            yield TextDelta(self.content)
        for index, call in enumerate(self.tool_calls):
            yield CallStart(index, call.id, call.name)
            yield ArgumentsDelta(index, call.arguments)
            if call.complete:
                yield CallEnd(index)
        yield Finish(self.finish_reason, self.usage, self.stats)

    def to_message(self) -> dict[str, Any]:
        """The OpenAI assistant message to append to ``messages`` of the next request; cut calls are left out."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        calls = [_message_call(call) for call in self.tool_calls if call.complete]
        return message | ({"tool_calls": calls} if calls else {})


def fold(events: Iterable[Event]) -> ChatMessage:
    """Fold all events of a stream with one answer.

    Raises:
        GenerationError: the stream holds a ``failure``.
        ProtocolError: no terminal event, or events that do not fit each other.
    """
    folder = Folder()
    for event in events:
        folder.feed(event)
    return folder.result()


class Folder:
    """``fold`` in steps, for those who show the events as well. Pings and unknown events are ignored."""

    def __init__(self) -> None:
        self._start: Start | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._logprobs: list[TokenLogprob] = []
        self._finish: Finish | None = None

    def feed(self, event: Event) -> None:
        """Take the next event; raises as :func:`fold` does."""
        if self._finish is not None:
            raise ProtocolError(f"a {type(event).__name__} event came after `finish`")
        if event.choice:
            raise ProtocolError("there are several answers; `complete_choices` and `fold_choices` read them all")
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta):
            self._logprobs.extend(event.logprobs or ())
        match event:
            case Start():
                self._start = event
            case TextDelta(text=text):
                if text or not (event.token_ids or event.logprobs):  # else it only tells what tokens there were
                    self._text.append(text)
            case ReasoningDelta(text=text):
                self._reasoning.append(text)
            case CallStart(index=index):
                self._open_call(index, event)
            case ArgumentsDelta(index=index, text=text):
                self._running(index).pieces.append(text)
            case CallEnd(index=index):
                self._running(index).complete = True
            case Finish():
                self._finish = event
            case Failure(code=code, message=message, param=param):
                raise GenerationError(WireError(code, message, param))

    def result(self) -> ChatMessage:
        """The message.

        Raises:
            ProtocolError: ``finish`` has not come, or it says `tool_calls` while a call is cut.
        """
        if self._finish is None:
            raise ProtocolError("the events end without `finish` or `failure`")
        calls = tuple(call.freeze() for _, call in sorted(self._calls.items()))
        if self._finish.reason == "tool_calls" and not (calls and all(call.complete for call in calls)):
            raise ProtocolError("`finish` says tool_calls, but there is no call or one that is cut")
        return ChatMessage(
            content="".join(self._text) if self._text else None,
            reasoning="".join(self._reasoning) if self._reasoning else None,
            tool_calls=calls,
            finish_reason=self._finish.reason,
            usage=self._finish.usage,
            stats=self._finish.stats,
            start=self._start,
            logprobs=tuple(self._logprobs) or None,
        )

    def _open_call(self, index: int, event: CallStart) -> None:
        if index in self._calls:
            raise ProtocolError(f"call {index} was started twice")
        self._calls[index] = _OpenCall(event)

    def _running(self, index: int) -> _OpenCall:
        call = self._calls.get(index)
        if call is None or call.complete:
            raise ProtocolError(f"an event belongs to call {index}, which is not running")
        return call


@dataclass(slots=True)
class _OpenCall:
    start: CallStart
    pieces: list[str] = field(default_factory=list)
    complete: bool = False

    def freeze(self) -> ToolCall:
        return ToolCall(self.start.id, self.start.name, "".join(self.pieces), self.complete)


def _message_call(call: ToolCall) -> MessageCall:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
