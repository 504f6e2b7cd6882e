"""Reads generated text back: reasoning, text, and DSML calls whose arguments stream as one JSON object.

A raw string (``string="true"``) is given out as it arrives, escaped; any other value when it is complete: it is read as
JSON first, and only behind it is its end tag looked for, so that a nested string may hold that tag. Only what may yet
become a tag is held back. The blank line before a block belongs to the block; blanks between its tags are tolerated.

Nothing is repaired. Anything else that deviates, a parameter that comes twice for one, makes the call *malformed*: its
text so far, from behind the last finished call on, is given as text, and arguments that were given out stay an
unfinished call. Outside a block only the tag that opens one means anything; in reasoning only its end does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Literal

from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed, Reasoning, Text
from heptagram_backend.formats.deepseek_v4.markup import BEFORE_BLOCK, THINK_END, Dsml
from heptagram_backend.formats.json_scanner import JsonScanner
from heptagram_backend.formats.reasoning import partial
from heptagram_backend.generation import Markup
from heptagram_wire.events import FinishReason

_BLANK: Final = " \t\r\n"
_NAME: Final = r'([^"<>\r\n]+)'
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST: Final = 512  # characters of an opening tag, and of a number


class _At(Enum):
    REASONING = auto()
    TEXT = auto()
    BLOCK = auto()  # between calls
    CALL = auto()  # between parameters
    STRING = auto()
    VALUE = auto()
    VALUE_END = auto()  # behind a JSON value


class DsmlParser:
    """See :class:`heptagram_backend.formats.base.OutputParser`.

    Args:
        dsml: the tags.
        parse_calls: without it markup of calls is text.
        starts_in_reasoning: the text begins inside the reasoning, which ``</think>`` ends.
    """

    def __init__(self, dsml: Dsml, *, parse_calls: bool, starts_in_reasoning: bool, markup: Markup = "free") -> None:
        self._dsml = dsml
        self._markup = markup
        self._parse_calls = parse_calls
        self._at = _At.REASONING if starts_in_reasoning else _At.TEXT
        self._text = ""  # not read yet
        self._raw = ""  # what was read behind the last finished call of the open block
        self._begun = False
        self._names: set[str] = set()
        self._scanner: JsonScanner | None = None
        self._value = ""
        self._pieces: list[Parsed] = []
        self._invoke = re.compile(f'{re.escape(dsml.invoke_begin)}{_NAME}">')
        self._parameter = re.compile(f'{re.escape(dsml.parameter_begin)}{_NAME}" string="(true|false)">')

    def feed(self, text: str) -> Sequence[Parsed]:
        self._text += text
        while self._text and self._step():
            pass
        return self._taken()

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:  # noqa: ARG002
        rest, self._text = self._text, ""
        match self._at:
            case _At.REASONING:
                self._give(Reasoning(rest))
            case _At.TEXT if self._markup != "calls":
                self._give(Text(rest))
            case _At.TEXT:
                pass  # half of an opening tag
            case _ if self._markup == "free" and not self._begun and (self._raw + rest).strip(_BLANK):
                self._give(Text(self._raw + rest))
        return self._taken()

    def _taken(self) -> list[Parsed]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _give(self, piece: Text | Reasoning | CallArguments) -> None:
        if piece.text:
            self._pieces.append(piece)

    def _step(self) -> bool:
        """Read on; False when more text is needed."""
        match self._at:
            case _At.REASONING:
                return self._reasoning()
            case _At.TEXT:
                return self._plain()
            case _At.STRING:
                return self._string()
            case _At.VALUE:
                return self._json()
            case _At.VALUE_END:
                return self._after_value()
        return self._between()

    def _take(self, count: int) -> str:
        taken, self._text = self._text[:count], self._text[count:]
        if self._at not in (_At.REASONING, _At.TEXT):
            self._raw += taken
        return taken

    def _until(self, tag: str) -> tuple[str, bool]:
        """Text in front of ``tag``, which is read over, or all that cannot be the start of it."""
        end = self._text.find(tag)
        if end < 0:
            return self._take(len(self._text) - partial(self._text, tag)), False
        text = self._take(end)
        self._take(len(tag))
        return text, True

    def _reasoning(self) -> bool:
        text, found = self._until(THINK_END)
        self._give(Reasoning(text))
        if found:
            self._at = _At.TEXT
        return found

    def _plain(self) -> bool:
        if not self._parse_calls:
            self._give(Text(self._take(len(self._text))))
            return False
        begin = self._dsml.block_begin
        start = self._text.find(begin)
        end = start if start >= 0 else len(self._text) - partial(self._text, begin)
        # The blank line before a block, or as much of it as is there.
        blank = 0
        while blank < len(BEFORE_BLOCK) and end > blank and self._text[end - blank - 1] == "\n":
            blank += 1
        held = blank if start < 0 or blank == len(BEFORE_BLOCK) else 0
        self._give(Text(self._take(end - held)))
        if start < 0:
            return False
        self._at, self._raw = _At.BLOCK, ""
        self._take(held + len(begin))
        return True

    def _between(self) -> bool:
        self._take(len(self._text) - len(self._text.lstrip(_BLANK)))
        if not self._text:
            return False
        in_call = self._at is _At.CALL
        end = self._dsml.invoke_end if in_call else self._dsml.block_end
        begin = self._dsml.parameter_begin if in_call else self._dsml.invoke_begin
        if self._text.startswith(end):
            self._take(len(end))
            self._end_call() if in_call else self._end_block()
            return True
        if match := (self._parameter if in_call else self._invoke).match(self._text):
            if match.end() > _LONGEST:
                return self._fault()
            self._take(match.end())
            return self._open_parameter(match[1], match[2] == "true") if in_call else self._open_call(match[1])
        if end.startswith(self._text) or begin.startswith(self._text):
            return False
        if self._text.startswith(begin) and len(self._text) < _LONGEST and self._is_header(self._text[len(begin) :]):
            return False
        return self._fault()

    def _is_header(self, rest: str) -> bool:
        """May ``rest``, read behind an opening tag's name attribute up to its quote, still become a whole tag?"""
        name, quote, tail = rest.partition('"')
        if not quote:
            return not set(name) & set("<>\r\n")
        tails = ('">',) if self._at is _At.BLOCK else tuple(self._dsml.before_value(string=s) for s in (True, False))
        return bool(name) and any(whole.startswith(quote + tail) for whole in tails)

    def _open_call(self, name: str) -> bool:
        self._at, self._begun, self._names = _At.CALL, True, set()
        self._pieces += [CallBegin(name), CallArguments("{")]
        return True

    def _open_parameter(self, name: str, is_string: bool) -> bool:
        if name in self._names:
            return self._fault()
        comma = ", " if self._names else ""
        self._names.add(name)
        self._give(CallArguments(f"{comma}{json.dumps(name, ensure_ascii=False)}: " + '"' * is_string))
        self._at, self._scanner, self._value = (_At.STRING if is_string else _At.VALUE), None, ""
        return True

    def _string(self) -> bool:
        text, found = self._until(self._dsml.parameter_end)
        self._give(CallArguments(json.dumps(text, ensure_ascii=False)[1:-1] + '"' * found))
        if found:
            self._at = _At.CALL
        return found

    def _json(self) -> bool:
        if not self._value:
            self._take(len(self._text) - len(self._text.lstrip(_BLANK)))
            if self._text.startswith(("{", "[", '"')):
                self._scanner = JsonScanner()
        if self._scanner is None:
            return self._scalar()
        end = self._scanner.feed(self._text, 0)
        self._value += self._take(end)
        if self._scanner.state == "failed":
            return self._fault()
        return self._scanner.state == "done" and self._value_read()

    def _scalar(self) -> bool:
        """A number or a word shows its end only by the tag behind it."""
        end = self._text.find("<")
        self._value += self._take(end if end >= 0 else len(self._text))
        if len(self._value) > _LONGEST:
            return self._fault()
        if end < 0:
            return False
        self._value = self._value.rstrip(_BLANK)
        return self._value_read() if _SCALAR.fullmatch(self._value) else self._fault()

    def _value_read(self) -> bool:
        self._give(CallArguments(self._value))
        self._at, self._scanner = _At.VALUE_END, None
        return True

    def _after_value(self) -> bool:
        self._take(len(self._text) - len(self._text.lstrip(_BLANK)))
        end = self._dsml.parameter_end
        if self._text.startswith(end):
            self._take(len(end))
            self._at = _At.CALL
            return True
        return not end.startswith(self._text) and self._fault()

    def _end_call(self) -> None:
        self._pieces += [CallArguments("}"), CallFinished()]
        self._at, self._begun, self._raw = _At.BLOCK, False, ""

    def _end_block(self) -> None:
        self._at, self._raw = _At.TEXT, ""

    def _fault(self) -> bool:
        """Give the markup as text, without what is not read yet: that is read as text."""
        self._give(Text(self._raw))
        self._at, self._begun, self._raw = _At.TEXT, False, ""
        return True
