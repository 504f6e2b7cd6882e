"""Examples as token ids: what is learnt is, token for token, what will be served."""

from __future__ import annotations

import json
from dataclasses import dataclass

from heptagram_backend.conversation import ChatRequest, PastCall
from heptagram_backend.formats.base import Format
from heptagram_backend.formats.deepseek_v4.encode import calls_text
from heptagram_backend.formats.deepseek_v4.markup import V4
from heptagram_backend.requests import RequestLimits, read_chat_request
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.training.example import Example


@dataclass(frozen=True, slots=True)
class Encoded:
    """``answer`` ends with the token that ends answers, if it is whole."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + self.answer


@dataclass(frozen=True, slots=True)
class Encoder:
    """By the served format and the checkpoint's tokenizer."""

    format: Format
    tokenizer: CheckpointTokenizer

    def prompt(self, example: Example) -> tuple[int, ...]:
        return self.format.encode(self.request(example), self.tokenizer).ids

    def __call__(self, example: Example) -> Encoded:
        answer = self.tokenizer.encode(answer_text(example, self.tokenizer))
        end = self.tokenizer.eos_ids[:1] if example.whole else ()
        return Encoded(self.prompt(example), (*answer, *end))

    def request(self, example: Example) -> ChatRequest:
        """The request as preprocess reads it."""
        return read_chat_request(example.request, RequestLimits(), "model", self.format.conventions)


def answer_text(example: Example, tokenizer: CheckpointTokenizer) -> str:
    """The wanted answer as text; control tokens in its words are guarded."""
    calls = [PastCall("", call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in example.calls]
    return tokenizer.guarded(example.text) + calls_text(calls, V4, tokenizer.guarded)
