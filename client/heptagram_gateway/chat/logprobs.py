"""Log probabilities and ids of tokens beside the pieces of a chat, in OpenAI's and vLLM's shapes. Pure.

``logprobs.content`` lists every token that the model wrote, each once, as vLLM does: those of reasoning, of calls and
of their markup too, and those of a stop string, which is not in the text. OpenAI lists the content's alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from heptagram_wire.events import ArgumentsDelta, ReasoningDelta, TextDelta, TokenLogprob, TopLogprob

_T = TypeVar("_T")
Delta = TextDelta | ReasoningDelta | ArgumentsDelta


@dataclass(slots=True)
class TokenNotes:
    """What deltas told of their tokens: ``None`` where they told nothing of the kind."""

    logprobs: list[TokenLogprob] | None = None
    token_ids: list[int] | None = None

    def add(self, delta: Delta) -> None:
        if delta.logprobs is not None:
            self.logprobs = _and(self.logprobs, delta.logprobs)
        if delta.token_ids is not None:
            self.token_ids = _and(self.token_ids, delta.token_ids)

    def fields(self) -> dict[str, Any]:
        """The fields of a choice: ``logprobs`` always, ``token_ids`` where there are any."""
        logprobs = None if self.logprobs is None else choice_logprobs(self.logprobs)
        return {"logprobs": logprobs} | ({} if self.token_ids is None else {"token_ids": self.token_ids})


def choice_logprobs(entries: Iterable[TokenLogprob]) -> dict[str, Any]:
    """OpenAI's ``ChoiceLogprobs``."""
    return {"content": [_with_top(entry) for entry in entries], "refusal": None}


def _and(known: list[_T] | None, more: Iterable[_T]) -> list[_T]:
    known = [] if known is None else known
    known.extend(more)
    return known


def _with_top(entry: TokenLogprob) -> dict[str, Any]:
    return _token(entry) | {"top_logprobs": [_token(top) for top in entry.top_logprobs]}


def _token(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": entry.token, "logprob": entry.logprob, "bytes": entry.bytes}
