"""An incremental, strict JSON reader that only finds where a value ends, or where it stops being JSON."""

from __future__ import annotations

import re
from typing import Final, Literal

State = Literal["open", "done", "failed"]

_BLANK: Final = " \t\n\r"
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")
# What may follow inside a number, by where one is in it; "!" marks the places where a number may end.
_NUMBER: Final[dict[str, tuple[tuple[frozenset[str], str], ...]]] = {
    "-": ((frozenset("0"), "0!"), (_DIGITS, "int!")),
    "0!": ((frozenset("."), "."), (frozenset("eE"), "e")),
    "int!": ((_DIGITS, "int!"), (frozenset("."), "."), (frozenset("eE"), "e")),
    ".": ((_DIGITS, "frac!"),),
    "frac!": ((_DIGITS, "frac!"), (frozenset("eE"), "e")),
    "e": ((_DIGITS, "exp!"), (frozenset("+-"), "sign")),
    "sign": ((_DIGITS, "exp!"),),
    "exp!": ((_DIGITS, "exp!"),),
}


class JsonScanner:
    """Reads one string, array or object, whose end shows by itself. Starts in front of its first character.

    >>> scanner = JsonScanner()
    >>> scanner.feed('{"a": "}', 0), scanner.state
    (8, 'open')
    >>> scanner.feed('"} rest', 0), scanner.state
    (2, 'done')
    """

    __slots__ = ("_closers", "_expect", "_number", "_rest", "state")

    def __init__(self) -> None:
        self.state: State = "open"
        self._closers: list[str] = []
        self._expect: Literal["value", "item", "key", "member", "colon", "after", "text", "escape", "hex", "word"]
        self._expect = "value"
        self._number = ""  # the place in a number, a key of _NUMBER
        self._rest = ""  # what is left of true, false, null; one character for each hex digit that is left

    def feed(self, text: str, start: int) -> int:
        """Read ``text`` from ``start``; returns where reading stopped: the end, behind the value, or at the fault."""
        place = start
        while place < len(text) and self.state == "open":
            if self._expect == "text" and (plain := _PLAIN.match(text, place)):
                place = plain.end()
                continue
            if not self._step(text[place]):
                self.state = "failed"
                break
            place += 1
        return place

    def _step(self, char: str) -> bool:
        if self._number:
            for chars, place in _NUMBER[self._number]:
                if char in chars:
                    self._number = place
                    return True
            if not self._number.endswith("!"):
                return False
            self._number = ""
            self._expect = "after"
        match self._expect:
            case "text":
                return self._text(char)
            case "escape":
                self._expect, self._rest = ("hex", "....") if char == "u" else ("text", "")
                return char in '"\\/bfnrtu'
            case "hex":
                self._rest = self._rest[1:]
                self._expect = "hex" if self._rest else "text"
                return char in _HEX
            case "word":
                matched = self._rest.startswith(char)
                self._rest = self._rest[1:]
                self._expect = "word" if self._rest else "after"
                return matched
        return (char in _BLANK and bool(self._closers)) or self._token(char)

    def _text(self, char: str) -> bool:
        if char == "\\":
            self._expect = "escape"
            return True
        if char != '"':
            return False
        # A key is marked by a colon on top of the closers, until its own colon comes.
        self._ended() if not self._closers or self._closers[-1] != ":" else self._key_ended()
        return True

    def _key_ended(self) -> None:
        self._closers.pop()
        self._expect = "colon"

    def _ended(self) -> None:
        self._expect = "after"
        if not self._closers:
            self.state = "done"

    def _token(self, char: str) -> bool:
        match self._expect:
            case "colon":
                self._expect = "value"
                return char == ":"
            case "after":
                return self._after(char)
            case "key" | "member":
                if char == "}" and self._expect == "member":
                    return self._close(char)
                self._closers.append(":")
                self._expect = "text"
                return char == '"'
            case "item" if char == "]":
                return self._close(char)
        return self._value(char)

    def _value(self, char: str) -> bool:
        if char in "{[":
            self._closers.append("}" if char == "{" else "]")
            self._expect = "member" if char == "{" else "item"
        elif char == '"':
            self._expect = "text"
        elif not self._closers:
            return False  # a bare number or word does not show its own end
        elif char == "-" or char in _DIGITS:
            self._number = {"-": "-", "0": "0!"}.get(char, "int!")
        elif char in "tfn":
            self._expect, self._rest = "word", {"t": "rue", "f": "alse", "n": "ull"}[char]
        else:
            return False
        return True

    def _after(self, char: str) -> bool:
        if char == ",":
            self._expect = "key" if self._closers[-1] == "}" else "value"
            return True
        return self._close(char)

    def _close(self, char: str) -> bool:
        if char != self._closers[-1]:
            return False
        self._closers.pop()
        self._ended()
        return True
