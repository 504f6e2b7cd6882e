"""Reads a call that is one JSON object: its arguments stream as they come.

JSON first, markup second: what closes a call is looked for only behind its object, so a string may contain it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Final, Literal

from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed
from heptagram_backend.formats.json_scanner import JsonScanner

BLANK: Final = " \t\n\r"
State = Literal["open", "done", "failed"]
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class JsonCallReader:
    """One call, from behind ``opening`` to the end of ``closing``. ``raw`` is all of its text so far.

    Its object has ``name`` and the key ``arguments``, in any order; JSON blanks may stand anywhere. A call begins when
    its name and the first character of its arguments are known. Anything else that deviates, double-encoded arguments
    for one, makes it ``failed``: nothing is repaired.

    Args:
        names: the names that a call may have; ``None`` for any.
    """

    def __init__(self, opening: str, closing: str, arguments: str, names: Container[str] | None = None) -> None:
        self.raw = opening
        self._closing = closing
        self._arguments_key = arguments
        self._known = names
        self.begun = False
        self.state: State = "open"
        self._expect: Literal["object", "key", "colon", "value", "next", "end"] = "object"
        self._scanner: JsonScanner | None = None
        self._scanned = ""
        self._key = ""
        self._keys: set[str] = set()
        self._name: str | None = None
        self._arguments = ""  # read, but not given out: the name is not known yet
        self._end = closing

    def feed(self, text: str, pieces: list[Parsed]) -> str:
        """Read on; returns what stands behind the call, or from its fault on."""
        place = 0
        while place < len(text) and self.state == "open":
            start = place
            if self._scanner is not None:
                place = self._scan(self._scanner, text, place, pieces)
            elif text[place] in BLANK and self._end == self._closing:
                place += 1
            else:
                place += self._step(text[place], pieces)
            self.raw += text[start:place]
        return text[place:]

    def _scan(self, scanner: JsonScanner, text: str, start: int, pieces: list[Parsed]) -> int:
        end = scanner.feed(text, start)
        if self._key == self._arguments_key:
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
            case "key" | "value" if char == ("{" if self._key == self._arguments_key else '"'):
                self._scanner, self._scanned = JsonScanner(), ""
                return 0
            case "colon" if char == ":":
                self._expect = "value"
            case "next" if char == "," and len(self._keys) == 1:
                self._expect, self._key = "key", ""
            case "next" if char == "}" and len(self._keys) == 2:
                self._expect = "end"
                self._end_if_closed(pieces)
            case "end" if self._end.startswith(char):
                self._end = self._end[1:]
                self._end_if_closed(pieces)
            case _:
                self.state = "failed"
                return 0
        return 1

    def _end_if_closed(self, pieces: list[Parsed]) -> None:
        if not self._end:
            self.state = "done"
            pieces.append(CallFinished())

    def _is_known(self, name: str | None) -> bool:
        return self._known is None or name in self._known

    def _value_read(self, pieces: list[Parsed]) -> None:
        if self._expect == "value":
            self._expect = "next"
            if self._key == "name":
                self._name = json.loads(self._scanned)
                if not self._name or _LONE_SURROGATE.search(self._name) or not self._is_known(self._name):
                    self.state = "failed"
                else:
                    self._give("", pieces)
            return
        self._key = json.loads(self._scanned)
        self._expect = "colon"
        if self._key not in ("name", self._arguments_key) or self._key in self._keys:
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
