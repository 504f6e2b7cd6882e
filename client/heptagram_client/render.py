"""Events on a terminal: text plain, reasoning dim, calls in colour; without colours each part has a mark in front."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, TextDelta

_RESET, _DIM, _CYAN, _BOLD_CYAN = "\x1b[0m", "\x1b[2m", "\x1b[36m", "\x1b[1;36m"
# What a model writes must not drive the terminal: control characters except tab and newline are shown, not sent.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(out: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Only on a terminal, and never when NO_COLOR is set to anything (no-color.org) or the terminal is dumb."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class Renderer:
    """Writes each event as it comes; ``close`` ends the last line."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._part: object = None
        self._line_open = False

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._begin("text", "")
                self._write(text)
            case ReasoningDelta(text=text):
                self._begin("reasoning", "[reasoning] ", _DIM)
                self._write(text, _DIM)
            case CallStart(index=index, name=name):
                self._begin(index, "[call] ", _BOLD_CYAN)
                self._write(f"{name} ", _BOLD_CYAN)
            case ArgumentsDelta(index=index, text=text):
                self._begin(index, "[call, continued] ", _CYAN)
                self._write(text, _CYAN)
            case CallEnd():
                self.close()
        self._out.flush()

    def close(self) -> None:
        if self._line_open:
            self._out.write("\n")
        self._line_open = False
        self._part = None

    def _begin(self, part: object, mark: str, style: str = "") -> None:
        """Start a new line where another part of the answer begins."""
        if part == self._part:
            return
        self.close()
        self._part = part
        if not self._colour or style == _BOLD_CYAN:
            self._write(mark, style)

    def _write(self, text: str, style: str = "") -> None:
        if not text:
            return
        safe = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        self._out.write(f"{style}{safe}{_RESET}" if style and self._colour else safe)
        self._line_open = not safe.endswith("\n")
