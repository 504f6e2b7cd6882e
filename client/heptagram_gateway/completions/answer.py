"""From pieces of text to OpenAI's text completions, streamed or whole. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_gateway.answer import sse
from heptagram_gateway.chat.envelope import Envelope
from heptagram_gateway.completions.run import Piece
from heptagram_gateway.errors import ApiError, openai_error

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
    """One stream's. ``echo`` are the prompts where the answer begins with them; ``usage`` as for chats."""

    def __init__(self, envelope: Envelope, echo: Sequence[str], *, usage: bool) -> None:
        self._frame = envelope.frame(KIND) | ({"usage": None} if usage else {})
        self._echo = echo
        self._counts = Counts()
        self._usage = usage

    def begin(self) -> Iterable[bytes]:
        return [self._chunk(place, prompt, None) for place, prompt in enumerate(self._echo) if prompt]

    def feed(self, event: Placed, /) -> Iterable[bytes]:
        place, piece = event
        self._counts.see(event)
        if piece.text or piece.reason is not None:
            yield self._chunk(place, piece.text, piece.reason)

    def fail(self, error: ApiError) -> Iterable[bytes]:
        self._usage = False
        yield sse(openai_error(error))

    def end(self) -> Iterable[bytes]:
        if self._usage:
            yield sse({**self._frame, "choices": [], "usage": self._counts.usage})
        yield sse("[DONE]")

    def _chunk(self, place: int, text: str, reason: str | None) -> bytes:
        return sse({**self._frame, "choices": [choice(place, text, reason)]})


def choice(place: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": place, "text": text, "logprobs": None, "finish_reason": reason}


def whole(envelope: Envelope, echo: Sequence[str], prompts: int, pieces: Sequence[Placed]) -> dict[str, Any]:
    """The body of an answer to so many prompts."""
    counts = Counts()
    texts = [[echo[place]] if echo else [] for place in range(prompts)]
    reasons: list[str | None] = [None] * prompts
    for place, piece in pieces:
        counts.see((place, piece))
        texts[place].append(piece.text)
        reasons[place] = piece.reason
    choices = [choice(place, "".join(texts[place]), reasons[place]) for place in range(prompts)]
    return envelope.frame(KIND) | {"choices": choices, "usage": counts.usage}
