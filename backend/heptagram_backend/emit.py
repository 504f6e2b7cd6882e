"""Committed tokens to wire events: detokenize, parse, match stop strings, validate finished calls. No torch."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.formats.base import (
    CallArguments,
    CallBegin,
    CallFinished,
    OutputParser,
    Parsed,
    Reasoning,
    Text,
)
from heptagram_backend.logprobs import ScoredToken, told
from heptagram_backend.stops import StopStrings
from heptagram_backend.validate import OutputValidator
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)

_Delta = TextDelta | ReasoningDelta | ArgumentsDelta


class Emitter:
    """One request's output side. :meth:`push` each committed token, :meth:`take` the events once a step."""

    def __init__(
        self,
        *,
        detokenizer: Detokenizer,
        parser: OutputParser,
        validator: OutputValidator,
        stops: Sequence[str] = (),
        token_ids: bool = False,
    ) -> None:
        self.detokenizer = detokenizer
        self._parser = parser
        self._validator = validator
        self._stops = StopStrings(stops)
        self._pending_ids: list[int] | None = [] if token_ids else None
        self._pending_logprobs: list[TokenLogprob] = []
        self._events: list[Event] = []
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self._texts: list[str] = []  # of an answer that is checked
        self._finished_calls = 0

    @property
    def stopped(self) -> bool:
        """A stop string is complete; the request ends here."""
        return self._stops.hit

    def push(self, token: int, scored: ScoredToken | None = None) -> None:
        """Read one committed token, with its log probability where that is to be told.

        Raises:
            InvalidOutputError: a finished call does not validate; everything before it can still be taken.
        """
        if self._pending_ids is not None:
            self._pending_ids.append(token)
        if scored is not None:
            self._pending_logprobs.append(told(scored, self.detokenizer.piece))
        self._read(self._parser.feed(self.detokenizer.feed(token)))

    def take(self) -> list[Event]:
        """The events since the last call, neighbours of one kind merged."""
        events, self._events = self._events, []
        if self._pending_ids or self._pending_logprobs:
            for place, event in enumerate(events):
                if isinstance(event, _Delta):
                    events[place] = self._with_tokens(event)
                    break
        return events

    def _with_tokens(self, delta: _Delta) -> _Delta:
        """The delta with everything there is to tell of the tokens since the last one."""
        ids, logprobs = self._pending_ids, self._pending_logprobs
        self._pending_ids, self._pending_logprobs = None if ids is None else [], []
        return replace(delta, token_ids=tuple(ids) if ids else None, logprobs=tuple(logprobs) if logprobs else None)

    def finish(self, reason: FinishReason) -> FinishReason:
        """End the text; what was held back comes out. Returns the reason to report: ``tool_calls`` if and only if
        the answer ended by itself and holds a finished call and no unfinished one.

        Raises:
            InvalidOutputError: the answer ended by itself and does not validate; as in :meth:`push`.
        """
        if not self._stops.hit:
            half = self.detokenizer.flush()
            if reason == "stop":  # where the text was cut, half a character may be one of the markup: it is no text
                self._read(self._parser.feed(half))
            self._read(self._parser.flush(reason))
            self._text(self._stops.flush())
        untold = self._pending_ids or self._pending_logprobs
        if untold and not any(isinstance(event, _Delta) for event in self._events):
            self._add(TextDelta(""))
        ended = reason == "stop" and not self._stops.hit
        if not ended or self._call is not None:
            return reason
        if not self._finished_calls and self._validator.reads_text:
            self._validator.check_text("".join(self._texts))
        return "tool_calls" if self._finished_calls else reason

    def _read(self, pieces: Sequence[Parsed]) -> None:
        for piece in pieces:
            if self._stops.hit:
                return
            match piece:
                case Text(text):
                    if self._validator.reads_text:
                        self._texts.append(text)
                    self._text(self._stops.feed(text))
                case Reasoning(text):
                    self._add(ReasoningDelta(text))
                case CallBegin(name):
                    self._begin(name)
                case CallArguments(text):
                    self._argument(text)
                case CallFinished():
                    self._end()

    def _text(self, text: str) -> None:
        if text:
            self._add(TextDelta(text))

    def _begin(self, name: str) -> None:
        self._text(self._stops.flush())
        self._call = CallStart(index=self._finished_calls, id=f"call_{secrets.token_hex(12)}", name=name)
        self._arguments = []
        self._add(self._call)

    def _argument(self, text: str) -> None:
        assert self._call is not None, "the parser gave arguments outside a call"
        self._arguments.append(text)
        self._add(ArgumentsDelta(self._call.index, text))

    def _end(self) -> None:
        assert self._call is not None, "the parser ended a call that did not begin"
        self._validator.check_call(self._call.name, "".join(self._arguments))
        self._add(CallEnd(self._call.index))
        self._finished_calls += 1
        self._call = None

    def _add(self, event: Event) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, TextDelta | ReasoningDelta) and type(last) is type(event):
            assert isinstance(last, TextDelta | ReasoningDelta)
            self._events[-1] = replace(last, text=last.text + event.text)
        elif isinstance(event, ArgumentsDelta) and isinstance(last, ArgumentsDelta):
            self._events[-1] = replace(last, text=last.text + event.text)
        else:
            self._events.append(event)
