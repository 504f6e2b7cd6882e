"""Reads one call: its arguments stream as one JSON object.

A string is given out as it arrives, escaped, where its type or its first character shows that it is one; any other
value when it is complete. Only what may yet become a tag is held back. Blanks between the tags are tolerated; anything
else that deviates, a parameter that comes twice for one, makes the call *malformed*. Nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed
from heptagram_backend.formats.hermes.markup import CALL_BEGIN, CALL_END
from heptagram_backend.formats.json_call import BLANK, State
from heptagram_backend.formats.qwen3_xml.markup import (
    FUNCTION_BEGIN,
    FUNCTION_END,
    NAME_END,
    PARAMETER_BEGIN,
    VALUE_END,
)
from heptagram_backend.formats.qwen3_xml.types import ANY, json_text, starts
from heptagram_backend.formats.reasoning import partial

_NAME: Final = re.compile(r"[^<>\r\n]*")
_LONGEST: Final = 512  # characters of a name


class _At(Enum):
    CALL = auto()  # before the function
    FUNCTION = auto()  # between parameters
    VALUE = auto()
    END = auto()  # behind the function


class XmlCallReader:
    """See :class:`heptagram_backend.formats.hermes.parse.CallReader`.

    Args:
        tools: the types of the parameters by tool, as :class:`heptagram_backend.generation.OutputSpec` has them.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, str]]) -> None:
        self.state: State = "open"
        self.begun = False
        self._tools = tools
        self._types: Mapping[str, str] = {}
        self._at = _At.CALL
        self._read = CALL_BEGIN
        self._text = ""  # not read yet
        self._names: set[str] = set()
        self._type = ANY
        self._value: str | None = ""  # held back as long as it may be JSON; ``None`` once it streams as a string
        self._pieces: list[Parsed] = []

    @property
    def raw(self) -> str:
        return self._read + (self._text if self.state == "open" else "")

    def feed(self, text: str, pieces: list[Parsed]) -> str:
        self._text += text
        self._pieces = pieces
        while self._text and self.state == "open" and self._step():
            pass
        return "" if self.state == "open" else self._text

    def _step(self) -> bool:
        """Read on; False when more text is needed, or nothing more is to be read."""
        match self._at:
            case _At.CALL:
                return self._tags({FUNCTION_BEGIN: self._begin_function})
            case _At.FUNCTION:
                return self._tags({PARAMETER_BEGIN: self._begin_parameter, FUNCTION_END: self._end_function})
            case _At.END:
                return self._tags({CALL_END: self._end_call})
        return self._in_value()

    def _take(self, count: int) -> str:
        taken, self._text = self._text[:count], self._text[count:]
        self._read += taken
        return taken

    def _give(self, text: str) -> None:
        if text:
            self._pieces.append(CallArguments(text))

    def _tags(self, known: Mapping[str, Callable[[str], bool]]) -> bool:
        self._take(len(self._text) - len(self._text.lstrip(BLANK)))
        for begin, act in known.items():
            if self._text.startswith(begin):
                return act(begin)
        return not any(begin.startswith(self._text) for begin in known) and self._fail()

    def _name_behind(self, begin: str) -> str | None:
        """The name of an opening tag, which is read over; ``None`` when more text is needed, or it is none."""
        match = _NAME.match(self._text, len(begin))
        assert match is not None
        if match.end() == len(self._text) and len(match[0]) <= _LONGEST:
            return None
        if not 0 < len(match[0]) <= _LONGEST or self._text[match.end()] != NAME_END:
            self._fail()
            return None
        self._take(match.end() + len(NAME_END))
        return match[0]

    def _begin_function(self, begin: str) -> bool:
        name = self._name_behind(begin)
        if name is None:
            return False
        self._at, self.begun = _At.FUNCTION, True
        self._types = self._tools.get(name, {})
        self._pieces += [CallBegin(name), CallArguments("{")]
        return True

    def _begin_parameter(self, begin: str) -> bool:
        name = self._name_behind(begin)
        if name is None:
            return False
        if name in self._names:
            return self._fail()
        self._give(f"{', ' if self._names else ''}{json.dumps(name, ensure_ascii=False)}: ")
        self._names.add(name)
        self._type = frozenset(self._types[name].split("|")) if name in self._types else ANY
        self._at, self._value = _At.VALUE, ""
        return True

    def _in_value(self) -> bool:
        end = self._text.find(VALUE_END)
        found = end >= 0
        text = self._take(end if found else len(self._text) - partial(self._text, VALUE_END))
        if self._value is not None:
            self._value = self._streamed(self._value + text)
        else:
            self._give(_inside(text))
        if found:
            self._take(len(VALUE_END))
            self._give('"' if self._value is None else json_text(self._value.removeprefix("\n"), self._type))
            self._at = _At.FUNCTION
        return found

    def _streamed(self, value: str) -> str | None:
        """Begin to give out a value that is surely a string; returns it while that is not known."""
        text = value.removeprefix("\n")
        if not text or text[0] in starts(self._type):
            return value
        self._give('"' + _inside(text))
        return None

    def _end_function(self, tag: str) -> bool:
        self._take(len(tag))
        self._give("}")
        self._at = _At.END
        return True

    def _end_call(self, tag: str) -> bool:
        self._take(len(tag))
        self._pieces.append(CallFinished())
        self.state = "done"
        return False

    def _fail(self) -> bool:
        self.state = "failed"
        return False


def _inside(text: str) -> str:
    """``text`` as it stands inside the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
