"""Reads generated text back: text, and calls that open the answer or stand behind ``<|python_tag|>``.

An object that opens the answer is a call if it has the name of one of the tools and ``parameters``; any other, and what
stands behind the tag and is no call, is text. Nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import Enum, auto
from typing import Final, Literal

from heptagram_backend.formats.base import Parsed, Text
from heptagram_backend.formats.json_call import BLANK, JsonCallReader
from heptagram_backend.formats.llama3_json.markup import ARGUMENTS, PYTHON_TAG, SEPARATOR
from heptagram_backend.formats.reasoning import partial
from heptagram_backend.generation import Markup
from heptagram_wire.events import FinishReason

_NAME: Final = '"name"'


class _At(Enum):
    FIRST = auto()  # where a call may begin
    NEXT = auto()  # behind a call
    CALL = auto()
    TEXT = auto()


class LlamaParser:
    """See :class:`heptagram_backend.formats.base.OutputParser`. ``names`` are those of the tools; ``None`` for any."""

    def __init__(self, names: Container[str] | None, markup: Markup = "free") -> None:
        self._names = names
        self._markup = markup
        self._at = _At.FIRST
        self._held = ""  # what may yet lead to a call, or the start of the tag
        self._call = self._reader("")

    def feed(self, text: str) -> Sequence[Parsed]:
        pieces: list[Parsed] = []
        while text:
            if self._at is _At.CALL:
                text = self._read_call(text, pieces)
                continue
            text, self._held = self._held + text, ""
            text = self._read_text(text, pieces) if self._at is _At.TEXT else self._read_lead(text, pieces)
        return pieces

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:  # noqa: ARG002
        held = self._call.raw if self._at is _At.CALL and not self._call.begun else self._held
        return [Text(held)] if held and not self._is_markup(held) else []

    def _is_markup(self, held: str) -> bool:
        """Is what was held back surely no text?"""
        if self._markup == "calls" or (self._at is _At.NEXT and not held.strip(BLANK)):
            return True
        return self._markup == "guarded" and (self._at is _At.NEXT or PYTHON_TAG in held or _NAME in held)

    def _reader(self, opening: str) -> JsonCallReader:
        return JsonCallReader(opening, "", ARGUMENTS, self._names)

    def _read_text(self, text: str, pieces: list[Parsed]) -> str:
        start = text.find(PYTHON_TAG)
        end = start if start >= 0 else len(text) - partial(text, PYTHON_TAG)
        if end:
            pieces.append(Text(text[:end]))
        if start < 0:
            self._held = text[end:]
            return ""
        self._at = _At.FIRST
        return text[end:]

    def _read_lead(self, text: str, pieces: list[Parsed]) -> str:
        """Find out whether a call begins here."""
        found, length = _lead(text, parted=self._at is _At.FIRST)
        if found == "open":
            self._held = text
            return ""
        if found == "call":
            self._at, self._call = _At.CALL, self._reader(text[:length])
            return text[length:]
        self._at = _At.TEXT
        if length:
            pieces.append(Text(text[:length]))
        return text[length:]

    def _read_call(self, text: str, pieces: list[Parsed]) -> str:
        rest = self._call.feed(text, pieces)
        if self._call.state == "failed":
            pieces.append(Text(self._call.raw))
            self._at = _At.TEXT
        elif self._call.state == "done":
            self._at = _At.NEXT
        return rest


def _lead(text: str, *, parted: bool) -> tuple[Literal["call", "text", "open"], int]:
    """What ``text`` leads to, and how much of it stands before that. Without ``parted`` a call needs the separator or
    the tag before it."""
    place = _behind_blanks(text, 0)
    if not parted and text.startswith(SEPARATOR, place):
        place, parted = _behind_blanks(text, place + len(SEPARATOR)), True
    if text.startswith(PYTHON_TAG, place):
        place, parted = _behind_blanks(text, place + len(PYTHON_TAG)), True
    elif PYTHON_TAG.startswith(text[place:]):
        return "open", place
    if place == len(text):
        return "open", place
    return ("call" if parted and text[place] == "{" else "text"), place


def _behind_blanks(text: str, start: int) -> int:
    return len(text) - len(text[start:].lstrip(BLANK))
