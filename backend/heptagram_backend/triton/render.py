"""How an answer leaves: a chat as JSON events, a completion as vllm_backend's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from heptagram_backend.generation import GenerationRequest
from heptagram_backend.triton.tensors import number_tensor, text_tensor
from heptagram_wire import tensors as names
from heptagram_wire.codec import encode_event, encode_logprobs
from heptagram_wire.events import Event, Finish, ReasoningDelta, TextDelta, TokenLogprob

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
    """Only text and the end have a place in the tensors: ``start`` and ``ping`` are responses with an empty text.

    Args:
        request: with ``completion``, which says what was asked for.
    """

    tells_failures = False

    def __init__(self, request: GenerationRequest) -> None:
        assert request.completion is not None
        self._asked = request.completion
        self._prompt_tokens = len(request.prompt_ids)
        self._text = request.completion.prompt
        self._counted = 0
        self._logprob = 0.0

    def render(self, events: Sequence[Event]) -> list[Any]:
        deltas = [event for event in events if isinstance(event, TextDelta | ReasoningDelta)]
        text, self._text = self._text + "".join(delta.text for delta in deltas), ""
        finish = events[-1] if events and isinstance(events[-1], Finish) else None
        tensors = [text_tensor(names.TEXT_OUTPUT, [text])]
        if self._asked.finish_reason:
            reason = _BEFORE_THE_END if finish is None else finish.reason
            tensors.append(text_tensor(names.FINISH_REASON, [reason]))
        if self._asked.num_input_tokens:
            tensors.append(number_tensor(names.NUM_INPUT_TOKENS, self._prompt_tokens, np.uint32))
        if self._asked.num_output_tokens:
            count = self._count(deltas, finish)
            tensors.append(number_tensor(names.NUM_OUTPUT_TOKENS, count, np.uint32))
        tensors += self._likelihoods([entry for delta in deltas for entry in delta.logprobs or ()])
        return tensors if finish is None else tensors + _draft_counts(finish)

    def _likelihoods(self, entries: Sequence[TokenLogprob]) -> list[Any]:
        self._logprob += sum(entry.logprob for entry in entries)
        tensors = []
        if self._asked.cumulative_logprob:
            tensors.append(number_tensor(names.CUMULATIVE_LOGPROB, self._logprob, np.float32))
        if self._asked.logprobs:
            tensors.append(text_tensor(names.LOGPROBS, [encode_logprobs(entries)]))
        return tensors

    def _count(self, deltas: Sequence[TextDelta | ReasoningDelta], finish: Finish | None) -> int:
        """Tokens of this response; the last one has the rest, so that they add up to the usage."""
        count = sum(len(delta.token_ids or ()) for delta in deltas)
        if finish is not None:
            count = finish.usage.completion_tokens - self._counted
        self._counted += count
        return count


def renderer_of(request: GenerationRequest) -> Renderer:
    return EventRenderer() if request.completion is None else CompletionRenderer(request)


def _draft_counts(finish: Finish) -> list[Any]:
    drafts = finish.stats.speculative_decoding
    return [
        number_tensor(names.TOTAL_DRAFT_TOKENS, drafts.num_draft_tokens, np.uint32),
        number_tensor(names.TOTAL_ACCEPTED_DRAFT_TOKENS, drafts.num_accepted_draft_tokens, np.uint32),
        number_tensor(names.ACCEPTANCE_RATE, drafts.draft_acceptance_rate, np.float32),
    ]
