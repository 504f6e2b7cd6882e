"""Reads generated text back: text, and calls between ``<tool_call>`` and ``</tool_call>``.

A *malformed* call is text, from its opening tag on. Arguments that were given out before the fault stay an unfinished
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from heptagram_backend.formats.base import Parsed, Text
from heptagram_backend.formats.hermes.markup import CALL_BEGIN, CALL_END
from heptagram_backend.formats.json_call import BLANK, JsonCallReader, State
from heptagram_backend.formats.reasoning import partial
from heptagram_backend.generation import Markup
from heptagram_wire.events import FinishReason


class CallReader(Protocol):
    """Reads one call, from behind its opening tag on. ``raw`` is all of its text so far, ``begun`` whether its
    beginning was given out."""

    state: State
    begun: bool

    @property
    def raw(self) -> str: ...

    def feed(self, text: str, pieces: list[Parsed]) -> str:
        """Read on; returns what stands behind the call, or from its fault on."""


def json_call() -> CallReader:
    return JsonCallReader(CALL_BEGIN, CALL_END, "arguments")


class PlainParser:
    """Markup means nothing here: everything is text."""

    def feed(self, text: str) -> Sequence[Parsed]:
        return [Text(text)] if text else []

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:  # noqa: ARG002
        return []


class CallParser:
    """Text and calls in any order; blanks directly behind a call are swallowed unless text follows them.

    ``markup`` decides what becomes of a call that was cut before its name was known, and of half a tag. ``reader``
    makes what reads a call; ``before`` is what stands between text and a call, and belongs to neither.
    """

    def __init__(
        self, markup: Markup = "free", reader: Callable[[], CallReader] = json_call, *, before: str = ""
    ) -> None:
        self._markup = markup
        self._reader = reader
        self._before = before
        self._held = ""  # text that may yet be blanks between calls or the start of a tag
        self._behind_call = False
        self._call: CallReader | None = None

    def feed(self, text: str) -> Sequence[Parsed]:
        pieces: list[Parsed] = []
        while text:
            if self._call is None:
                text = self._read_text(self._held + text, pieces)
            else:
                text = self._read_call(self._call, text, pieces)
        return pieces

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:  # noqa: ARG002
        held, self._held = self._held, ""
        call, self._call = self._call, None
        if call is not None:
            return [] if call.begun or self._markup != "free" else [Text(call.raw)]
        if self._markup == "calls":
            return []
        if self._behind_call:
            held = held if held.strip(BLANK) else ""
        return [Text(held)] if held else []

    def _read_text(self, text: str, pieces: list[Parsed]) -> str:
        """Give out text up to a tag; returns what follows the tag, and holds what may be the start of one."""
        self._held = ""
        start = text.find(CALL_BEGIN)
        found = start >= 0
        end = start if found else len(text) - partial(text, CALL_BEGIN)
        end -= self._line_breaks(text[:end], whole=found)
        plain, rest = text[:end], text[end:]
        if self._behind_call and not plain.strip(BLANK):
            # Only blanks so far: they fall away before the next call, and wait for what comes otherwise.
            plain, rest = ("", rest) if found else ("", text)
        if plain:
            self._behind_call = False
            pieces.append(Text(plain))
        if not found:
            self._held = rest
            return ""
        self._behind_call = False
        self._call = self._reader()
        return text[start + len(CALL_BEGIN) :]

    def _line_breaks(self, text: str, *, whole: bool) -> int:
        """How many of ``before`` stand at the end of ``text``; with ``whole`` none unless all do."""
        for length in range(len(self._before), 0, -1):
            if text.endswith(self._before[:length]):
                return length if length == len(self._before) or not whole else 0
        return 0

    def _read_call(self, call: CallReader, text: str, pieces: list[Parsed]) -> str:
        rest = call.feed(text, pieces)
        if call.state == "failed":
            pieces.append(Text(call.raw))
        elif call.state == "done":
            self._behind_call = True
        if call.state != "open":
            self._call = None
        return rest
