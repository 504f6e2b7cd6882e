"""Reasoning in front of an answer: as part of a constraint, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Literal

from heptagram_backend.formats.base import OutputParser, Parsed, Reasoning, When
from heptagram_backend.formats.nodes import Node, const, optional, sequence, tag, text_without
from heptagram_backend.generation import Markup, Trigger
from heptagram_wire.events import FinishReason


@dataclass(frozen=True, slots=True)
class ReasoningTag:
    """How an answer's reasoning is written.

    Args:
        when: ``always``: the answer begins inside it; ``maybe``: the answer may open with it; ``never``: there is none.
        begin, end: its tags.
        markers: what it does not hold, such as the marker of a call.
        joint: what stands between it and calls or a response format.
    """

    when: When
    begin: str = ""
    end: str = ""
    markers: tuple[str, ...] = ()
    joint: str = ""

    def before(self, answer: Node) -> Node:
        """The reasoning, then ``answer``."""
        return self._before(answer, [const(self.joint)] if self.joint else [])

    def before_text(self, answer: Node) -> Node:
        """The same for an answer that may begin with any text."""
        return self._before(answer, [])

    def armed(self, trigger: Trigger) -> Trigger:
        """``trigger``, which counts only behind the reasoning."""
        if self.when == "never":
            return trigger
        return replace(trigger, after=self.end, opening="" if self.when == "always" else self.begin)

    def _before(self, answer: Node, joint: list[Node]) -> Node:
        if self.when == "never":
            return answer
        inside = text_without(self.begin, *self.markers)
        if self.when == "always":
            return sequence([tag("", inside, self.end), *joint, answer])
        return sequence([optional(sequence([tag(self.begin, inside, self.end), *joint])), answer])


NO_REASONING: Final = ReasoningTag("never")


class _At(Enum):
    START = auto()
    REASONING = auto()
    BEHIND = auto()  # only line breaks since the reasoning
    ANSWER = auto()


class ReasoningParser:
    """Reads the reasoning and leaves the rest to ``answer``.

    An answer that opens with ``begin`` opens with reasoning. Line breaks at both ends of it are not part of it, and
    those behind it are not part of the answer, as in the templates that write it.
    """

    def __init__(self, answer: OutputParser, *, begin: str, end: str, inside: bool, markup: Markup = "free") -> None:
        self._answer = answer
        self._markup = markup
        self._begin = begin
        self._end = end
        self._at = _At.REASONING if inside else _At.START
        self._held = ""
        self._fresh = True  # nothing of the reasoning but line breaks so far

    def feed(self, text: str) -> Sequence[Parsed]:
        if self._at is _At.ANSWER:
            return self._answer.feed(text)
        text, self._held = self._held + text, ""
        pieces: list[Parsed] = []
        if self._at is _At.START:
            text = self._start(text)
        if self._at is _At.REASONING:
            text = self._reasoning(text, pieces)
        if self._at is _At.BEHIND:
            text = text.lstrip("\n")
            self._at = _At.ANSWER if text else _At.BEHIND
        if self._at is _At.ANSWER and text:
            pieces += self._answer.feed(text)
        return pieces

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:
        held, self._held = self._held, ""
        if self._at is _At.REASONING:
            return [Reasoning(held)] if held else []
        if self._markup == "calls":
            held = ""  # half of an opening tag
        return [*self._answer.feed(held), *self._answer.flush(reason)]

    def _start(self, text: str) -> str:
        """Find out what the answer opens with."""
        if text.startswith(self._begin):
            self._at = _At.REASONING
            return text[len(self._begin) :]
        if self._begin.startswith(text):
            self._held = text
            return ""
        self._at = _At.ANSWER
        return text

    def _reasoning(self, text: str, pieces: list[Parsed]) -> str:
        """Give out what is surely reasoning; returns what follows it."""
        if self._fresh:
            text = text.lstrip("\n")
        end = text.find(self._end)
        found = end >= 0
        inside = text[:end] if found else text[: len(text) - partial(text, self._end)]
        given = inside.rstrip("\n")
        if given:
            self._fresh = False
            pieces.append(Reasoning(given))
        if not found:
            self._held = text[len(given) :]
            return ""
        self._at = _At.BEHIND
        return text[end + len(self._end) :]


def partial(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that could become ``tag``."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
