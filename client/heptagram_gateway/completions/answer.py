"""From pieces of text to OpenAI's text completions, streamed or whole. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_gateway.answer import sse
from heptagram_gateway.chat.envelope import Envelope
from heptagram_gateway.completions.logprobs import LogprobsWriter
from heptagram_gateway.completions.run import Piece
from heptagram_gateway.errors import ApiError, openai_error
from heptagram_wire.events import TokenLogprob

KIND: Final = "text_completion"
Placed = tuple[int, Piece]  # the place of its prompt, and the piece


@dataclass(slots=True)
class Counts:
    """Tokens of all prompts. A prompt's own are told with each of its pieces and counted once."""

    prompts: dict[int, int] = field(default_factory=dict)
    completion: int = 0

    def see(self, placed: Placed) -> None:
        place, piece = placed
        self.prompts[place] = piece.prompt_tokens
        self.completion += piece.completion_tokens

    @property
    def usage(self) -> dict[str, int]:
        prompt = sum(self.prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.completion,
            "total_tokens": prompt + self.completion,
        }


class TextEncoder:
    """One stream's, of ``n`` answers to each prompt, numbered prompt by prompt.

    ``echo`` are the prompts where the answers begin with them; ``usage`` as for chats.
    """

    def __init__(self, envelope: Envelope, echo: Sequence[str], *, n: int = 1, usage: bool) -> None:
        self._frame = envelope.frame(KIND) | ({"usage": None} if usage else {})
        self._n = n
        self._echo = _each(echo, n)
        self._counts = Counts()
        self._usage = usage
        self._logprobs: dict[int, LogprobsWriter] = {}

    def begin(self) -> Iterable[bytes]:
        return [self._chunk(place, prompt, None) for place, prompt in enumerate(self._echo) if prompt]

    def feed(self, event: Placed, /) -> Iterable[bytes]:
        prompt, piece = event
        place = prompt * self._n + piece.choice
        self._counts.see(event)
        if piece.text or piece.logprobs or piece.reason is not None:
            yield self._chunk(place, piece.text, piece.reason, self._write(place, piece))

    def fail(self, error: ApiError) -> Iterable[bytes]:
        self._usage = False
        yield sse(openai_error(error))

    def end(self) -> Iterable[bytes]:
        if self._usage:
            yield sse({**self._frame, "choices": [], "usage": self._counts.usage})
        yield sse("[DONE]")

    def _write(self, place: int, piece: Piece) -> dict[str, Any] | None:
        if not piece.logprobs:
            return None
        return self._logprobs.setdefault(place, LogprobsWriter()).write(piece.logprobs)

    def _chunk(self, place: int, text: str, reason: str | None, logprobs: dict[str, Any] | None = None) -> bytes:
        return sse({**self._frame, "choices": [choice(place, text, reason, logprobs)]})


def choice(place: int, text: str, reason: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": reason}


@dataclass(slots=True)
class _Answer:
    """What one answer's pieces add up to."""

    texts: list[str]
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: str | None = None

    def add(self, piece: Piece) -> None:
        self.texts.append(piece.text)
        self.logprobs += piece.logprobs
        self.reason = piece.reason or self.reason


def whole(
    envelope: Envelope,
    echo: Sequence[str],
    prompts: int,
    pieces: Sequence[Placed],
    *,
    n: int = 1,
    logprobs: bool = False,
) -> dict[str, Any]:
    """The body of ``n`` answers to each of so many prompts; ``logprobs``: they were asked for."""
    counts = Counts()
    answers = [_Answer([text]) for text in _each(echo or [""] * prompts, n)]
    for prompt, piece in pieces:
        counts.see((prompt, piece))
        answers[prompt * n + piece.choice].add(piece)
    choices = [
        choice(
            place, "".join(answer.texts), answer.reason, LogprobsWriter().write(answer.logprobs) if logprobs else None
        )
        for place, answer in enumerate(answers)
    ]
    return envelope.frame(KIND) | {"choices": choices, "usage": counts.usage}


def _each(texts: Sequence[str], n: int) -> list[str]:
    """Each text ``n`` times in a row."""
    return [text for text in texts for _ in range(n)]
