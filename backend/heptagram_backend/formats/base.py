"""What a model family must offer: encode a conversation, build its constraint, read its output back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from heptagram_wire.events import FinishReason


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call's name is known. Calls of one answer come one after the other; the emitter numbers them."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the JSON text of the open call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The open call is complete."""


Parsed = Text | Reasoning | CallBegin | CallArguments | CallFinished


class OutputParser(Protocol):
    """Sans-I/O reader of one answer. Any chunking of the same text gives the same merged pieces."""

    def feed(self, text: str) -> Sequence[Parsed]:
        """Read more text; hold back only what may be a partial tag."""

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:
        """The text is over: give out what was held back. A call that is still open stays unfinished."""
