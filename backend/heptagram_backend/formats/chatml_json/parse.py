"""Reads generated text back: text, and calls whose arguments stream as they come.

JSON first, markup second: the end tag is looked for only behind the call's JSON object, so a string may contain it.
JSON blanks are tolerated anywhere, and ``arguments`` may stand before ``name`` (it is then held until the name is
known). A call begins when its name and the first character of its arguments are known.

Anything else that deviates, double-encoded arguments for one, makes the call *malformed*: its whole text, from the
opening tag on, is given as text and nothing is repaired. Arguments that were given out before the fault stay an
unfinished call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Literal

from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed, Text
from heptagram_backend.formats.chatml_json.markup import CALL_BEGIN, CALL_END
from heptagram_backend.formats.json_scanner import JsonScanner
from heptagram_backend.generation import Markup
from heptagram_wire.events import FinishReason

_BLANK: Final = " \t\n\r"
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class PlainParser:
    """Markup means nothing here: everything is text."""

    def feed(self, text: str) -> Sequence[Parsed]:
        return [Text(text)] if text else []

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:  # noqa: ARG002
        return []


class CallParser:
    """Text and calls in any order; blanks directly behind a call are swallowed unless text follows them.

    ``markup`` decides what becomes of a call that was cut before its name was known, and of half a tag.
    """

    def __init__(self, markup: Markup = "free") -> None:
        self._markup = markup
        self._held = ""  # text that may yet be blanks between calls or the start of a tag
        self._behind_call = False
        self._call: _CallReader | None = None

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
            held = held if held.strip(_BLANK) else ""
        return [Text(held)] if held else []

    def _read_text(self, text: str, pieces: list[Parsed]) -> str:
        """Give out text up to a tag; returns what follows the tag, and holds what may be the start of one."""
        self._held = ""
        start = text.find(CALL_BEGIN)
        found = start >= 0
        end = start if found else len(text) - _partial_tag(text)
        plain, rest = text[:end], text[end:]
        if self._behind_call and not plain.strip(_BLANK):
            # Only blanks so far: they fall away before the next call, and wait for what comes otherwise.
            plain, rest = ("", rest) if found else ("", text)
        if plain:
            self._behind_call = False
            pieces.append(Text(plain))
        if not found:
            self._held = rest
            return ""
        self._behind_call = False
        self._call = _CallReader()
        return rest[len(CALL_BEGIN) :]

    def _read_call(self, call: _CallReader, text: str, pieces: list[Parsed]) -> str:
        end = call.feed(text, pieces)
        if call.state == "failed":
            pieces.append(Text(call.raw))
        elif call.state == "done":
            self._behind_call = True
        if call.state != "open":
            self._call = None
        return text[end:]


class _CallReader:
    """One call, from behind ``<tool_call>`` to ``</tool_call>``. ``raw`` is all of its text so far."""

    def __init__(self) -> None:
        self.raw = CALL_BEGIN
        self.begun = False
        self.state: Literal["open", "done", "failed"] = "open"
        self._expect: Literal["object", "key", "colon", "value", "next", "end"] = "object"
        self._scanner: JsonScanner | None = None
        self._scanned = ""
        self._key = ""
        self._keys: set[str] = set()
        self._name: str | None = None
        self._arguments = ""  # read, but not given out: the name is not known yet
        self._end = CALL_END

    def feed(self, text: str, pieces: list[Parsed]) -> int:
        """Read on; returns where reading stopped: the end of ``text``, behind the call, or at the fault."""
        place = 0
        while place < len(text) and self.state == "open":
            start = place
            if self._scanner is not None:
                place = self._scan(self._scanner, text, place, pieces)
            elif text[place] in _BLANK and self._end == CALL_END:
                place += 1
            else:
                place += self._step(text[place], pieces)
            self.raw += text[start:place]
        return place

    def _scan(self, scanner: JsonScanner, text: str, start: int, pieces: list[Parsed]) -> int:
        end = scanner.feed(text, start)
        if self._key == "arguments":
            self._give(text[start:end], pieces)
        else:
            self._scanned += text[start:end]
        if scanner.state == "failed":
            self.state = "failed"
        elif scanner.state == "done":
            self._scanner = None
            self._value_read(pieces)
        return end

    def _step(self, char: str, pieces: list[Parsed]) -> int:
        """Read one character between the values; 0 when it was left for a scanner or is a fault."""
        match self._expect:
            case "object" if char == "{":
                self._expect = "key"
            case "key" | "value" if char == ("{" if self._key == "arguments" else '"'):
                self._scanner, self._scanned = JsonScanner(), ""
                return 0
            case "colon" if char == ":":
                self._expect = "value"
            case "next" if char == "," and len(self._keys) == 1:
                self._expect, self._key = "key", ""
            case "next" if char == "}" and len(self._keys) == 2:
                self._expect = "end"
            case "end" if self._end.startswith(char):
                self._end = self._end[1:]
                if not self._end:
                    self.state = "done"
                    pieces.append(CallFinished())
            case _:
                self.state = "failed"
                return 0
        return 1

    def _value_read(self, pieces: list[Parsed]) -> None:
        if self._expect == "value":
            self._expect = "next"
            if self._key == "name":
                self._name = json.loads(self._scanned)
                if _LONE_SURROGATE.search(self._name or ""):
                    self.state = "failed"
                else:
                    self._give("", pieces)
            return
        self._key = json.loads(self._scanned)
        self._expect = "colon"
        if self._key not in ("name", "arguments") or self._key in self._keys:
            self.state = "failed"
        self._keys.add(self._key)

    def _give(self, text: str, pieces: list[Parsed]) -> None:
        self._arguments += text
        if self._name is None or not self._arguments:
            return
        if not self.begun:
            self.begun = True
            pieces.append(CallBegin(self._name))
        pieces.append(CallArguments(self._arguments))
        self._arguments = ""


def _partial_tag(text: str) -> int:
    """Length of the longest end of ``text`` that could become the opening tag."""
    for length in range(min(len(text), len(CALL_BEGIN) - 1), 0, -1):
        if text.endswith(CALL_BEGIN[:length]):
            return length
    return 0
