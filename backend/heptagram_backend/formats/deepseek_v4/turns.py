"""Messages as the turns that DeepSeek's models know: results of calls are part of a user's turn.

Neighbouring user and tool messages make one turn, its parts separated by a blank line. The results of one turn stand
in the order of the calls of the last assistant turn that made some; one of an unknown call counts as of the first.

Everything here is text already guarded, but for the arguments of past calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.conversation import Message, PastCall, Role
from heptagram_backend.formats.deepseek_v4.markup import RESULT_BEGIN, RESULT_END, can_name, without_result_tags

Guard = Callable[[str], str]

BETWEEN_PARTS: Final = "\n\n"
_UNREADABLE: Final = "arguments"


@dataclass(frozen=True, slots=True)
class Turn:
    """``speaks`` is false for a user's turn that holds results only."""

    role: Role
    text: str
    reasoning: str = ""
    calls: tuple[PastCall, ...] = ()
    speaks: bool = True


@dataclass(slots=True)
class _Part:
    """Of a user's turn; ``place`` is that of the answered call, ``None`` for what the user says."""

    text: str
    place: int | None = None


def merged_turns(messages: Sequence[Message], guarded: Guard) -> Iterator[Turn]:
    """The turns of a conversation, in their order."""
    parts: list[_Part] = []
    places: Mapping[str, int] = {}
    for message in messages:
        if message.role == "user":
            parts.append(_Part(guarded(without_result_tags(content(message)))))
            continue
        if message.role == "tool":
            result = guarded(without_result_tags(content(message)))
            parts.append(_Part(f"{RESULT_BEGIN}{result}{RESULT_END}", places.get(message.call_id or "", 0)))
            continue
        if parts:
            yield _user_turn(parts)
            parts = []
        if message.calls:
            places = {call.id: place for place, call in enumerate(message.calls)}
        yield Turn(message.role, guarded(content(message)), guarded(message.reasoning or ""), message.calls)
    if parts:
        yield _user_turn(parts)


def content(message: Message) -> str:
    """The text of a message; parts of it are separated by a blank line, and none is empty text."""
    return BETWEEN_PARTS.join(message.parts) if message.parts else message.content or ""


def read_arguments(text: str) -> Mapping[str, Any]:
    """Arguments of a past call by name. What is no JSON object, even when read twice, or has a name that the markup
    cannot carry, is one argument named ``arguments``: the text as it is.

    >>> read_arguments('{"city": "Os')
    {'arguments': '{"city": "Os'}
    """
    try:
        value = json.loads(text)
        value = json.loads(value) if isinstance(value, str) else value
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
    except (ValueError, RecursionError):
        return {_UNREADABLE: text}
    return value if isinstance(value, dict) and all(map(can_name, value)) else {_UNREADABLE: text}


def _user_turn(parts: Sequence[_Part]) -> Turn:
    results = sorted((part for part in parts if part.place is not None), key=lambda part: part.place or 0)
    ordered = iter(results)
    texts = [part.text if part.place is None else next(ordered).text for part in parts]
    return Turn("user", BETWEEN_PARTS.join(texts), speaks=len(results) < len(parts))
