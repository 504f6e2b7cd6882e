"""How an answer leaves: a chat as JSON events, a completion as vllm_backend's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from heptagram_backend.generation import GenerationRequest
from heptagram_backend.triton.tensors import number_tensor, text_tensor
from heptagram_wire import tensors as names
from heptagram_wire.codec import encode_event, encode_logprobs
from heptagram_wire.events import ChoiceEnd, Event, Finish, ReasoningDelta, TextDelta, TokenLogprob

_BEFORE_THE_END = "None"  # vllm_backend's text of no finish reason


class Renderer(Protocol):
    """One request's; called once a response, in order."""

    @property
    def tells_failures(self) -> bool:
        """A failure behind other responses is rendered; else it must leave as an error."""

    def render(self, events: Sequence[Event]) -> list[Any]:
        """The output tensors of one response."""


class EventRenderer:
    tells_failures = True

    def render(self, events: Sequence[Event]) -> list[Any]:
        return [text_tensor(names.EVENTS, [encode_event(event) for event in events])]


class CompletionRenderer:
    """Only texts and ends have a place in the tensors: ``start`` and ``ping`` are responses with empty texts.

    Args:
        request: with ``completion``, which says what was asked for, and ``n``, the length of what is told of answers.
    """

    tells_failures = False

    def __init__(self, request: GenerationRequest) -> None:
        assert request.completion is not None
        self._asked = request.completion
        self._prompt_tokens = len(request.prompt_ids)
        self._answers = [_Answer(request.completion.prompt) for _ in range(request.n)]

    def render(self, events: Sequence[Event]) -> list[Any]:
        finish = events[-1] if events and isinstance(events[-1], Finish) else None
        if finish is not None and len(self._answers) == 1:
            events = [*events[:-1], ChoiceEnd(finish.reason, finish.usage.completion_tokens)]
        pieces = [
            answer.next([event for event in events if event.choice == choice])
            for choice, answer in enumerate(self._answers)
        ]
        tensors = [text_tensor(names.TEXT_OUTPUT, [piece.text for piece in pieces])]
        if self._asked.finish_reason:
            tensors.append(text_tensor(names.FINISH_REASON, [piece.reason or _BEFORE_THE_END for piece in pieces]))
        if self._asked.num_input_tokens:
            tensors.append(number_tensor(names.NUM_INPUT_TOKENS, [self._prompt_tokens], np.uint32))
        if self._asked.num_output_tokens:
            tensors.append(number_tensor(names.NUM_OUTPUT_TOKENS, [piece.tokens for piece in pieces], np.uint32))
        if self._asked.cumulative_logprob:
            sums = [answer.logprob for answer in self._answers]
            tensors.append(number_tensor(names.CUMULATIVE_LOGPROB, sums, np.float32))
        if self._asked.logprobs:
            tensors.append(text_tensor(names.LOGPROBS, [encode_logprobs(piece.logprobs) for piece in pieces]))
        return tensors if finish is None else tensors + _draft_counts(finish)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one response tells of one answer."""

    text: str
    reason: str | None
    tokens: int
    logprobs: Sequence[TokenLogprob]


class _Answer:
    """One answer so far; ``text`` comes before its first piece."""

    def __init__(self, text: str) -> None:
        self.logprob = 0.0
        self._text = text
        self._counted = 0

    def next(self, events: Sequence[Event]) -> _Piece:
        """Read its events of one response."""
        deltas = [event for event in events if isinstance(event, TextDelta | ReasoningDelta)]
        end = next((event for event in events if isinstance(event, ChoiceEnd)), None)
        text, self._text = self._text + "".join(delta.text for delta in deltas), ""
        count = sum(len(delta.token_ids or ()) for delta in deltas)
        if end is not None:  # it has the rest, so that they add up to the usage
            count = end.completion_tokens - self._counted
        self._counted += count
        logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
        self.logprob += sum(entry.logprob for entry in logprobs)
        return _Piece(text, None if end is None else end.reason, count, logprobs)


def renderer_of(request: GenerationRequest) -> Renderer:
    return EventRenderer() if request.completion is None else CompletionRenderer(request)


def _draft_counts(finish: Finish) -> list[Any]:
    drafts = finish.stats.speculative_decoding
    return [
        number_tensor(names.TOTAL_DRAFT_TOKENS, [drafts.num_draft_tokens], np.uint32),
        number_tensor(names.TOTAL_ACCEPTED_DRAFT_TOKENS, [drafts.num_accepted_draft_tokens], np.uint32),
        number_tensor(names.ACCEPTANCE_RATE, [drafts.draft_acceptance_rate], np.float32),
    ]
