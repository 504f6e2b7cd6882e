"""The messages of a chat request, built from the smaller items that other APIs have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.errors import ApiError, unsupported
from heptagram_gateway.places import Places
from heptagram_wire.errors import INVALID_TYPE, MISSING

_ORDER: Final = ("role", "reasoning_content", "content", "tool_calls")  # of what an assistant does in one turn


@dataclass(frozen=True, slots=True)
class Words:
    """What an API calls the fields of its calls and results."""

    call_id: str
    arguments: str
    result_id: str
    result: str


class Turns:
    """Collects messages; ``place`` is always where the caller wrote it.

    What an assistant thinks, says and calls in this order is one message; a new one begins where the order does.
    """

    def __init__(self, places: Places, words: Words) -> None:
        self.messages: list[dict[str, Any]] = []
        self._places = places
        self._words = words

    def say(self, role: Any, content: Any, place: str, content_place: str) -> None:
        """A message of somebody else; what is ``None`` is left out."""
        self._add({"role": role, "content": content}, place)
        self._came_from("content", content_place)

    def answer(self, content: Any, place: str, content_place: str) -> None:
        self._assistant("content", place)["content"] = content
        self._came_from("content", content_place)

    def think(self, text: str, place: str, text_place: str) -> None:
        """Thoughts in a row are one."""
        last = self.messages[-1] if self.messages else {}
        if set(last) == {"role", "reasoning_content"}:
            last["reasoning_content"] += "\n" + text
        else:
            self._assistant("reasoning_content", place)["reasoning_content"] = text
            self._came_from("reasoning_content", text_place)

    def call(self, id: Any, function: Mapping[str, Any], place: str) -> None:
        """``function`` has the name, the arguments and maybe a namespace."""
        calls = self._assistant("tool_calls", place).setdefault("tool_calls", [])
        chat = f"tool_calls[{len(calls)}]"
        calls.append({"id": id, "type": "function", "function": dict(function)})
        for path, own in (
            (chat, place),
            (f"{chat}.id", f"{place}.{self._words.call_id}"),
            (f"{chat}.function", place),
            (f"{chat}.function.arguments", f"{place}.{self._words.arguments}"),
        ):
            self._came_from(path, own)

    def result(self, call_id: Any, content: Any, place: str) -> None:
        self._add({"role": "tool", "tool_call_id": call_id, "content": content}, place)
        self._came_from("tool_call_id", f"{place}.{self._words.result_id}")
        self._came_from("content", f"{place}.{self._words.result}")

    def finished(self) -> list[dict[str, Any]]:
        """The messages; an assistant that did nothing but think has said nothing."""
        for message in self.messages:
            if set(message) == {"role", "reasoning_content"}:
                message["content"] = ""
        return self.messages

    def part_came_from(self, part: int, place: str) -> None:
        """The part of that number in the last message's content was written at ``place``."""
        self._came_from(f"content[{part}]", place)

    def _assistant(self, key: str, place: str) -> dict[str, Any]:
        last = self.messages[-1] if self.messages else {}
        free = last.get("role") == "assistant" and (key == "tool_calls" or not _reached(last, key))
        return last if free else self._add({"role": "assistant"}, place)

    def _add(self, message: Mapping[str, Any], place: str) -> dict[str, Any]:
        self.messages.append({key: value for key, value in message.items() if value is not None})
        self._places.came_from(f"messages[{len(self.messages) - 1}]", place)
        return self.messages[-1]

    def _came_from(self, path: str, own: str) -> None:
        self._places.came_from(f"messages[{len(self.messages) - 1}].{path}", own)


def text_part(part: Any, kinds: Mapping[str, str], place: str) -> Any:
    """One part of a content in chat's form; ``kinds`` are the API's names of text. What is no part is left as it is.

    Raises:
        ApiError: it is a picture, a file or the like.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return part
    if kind not in kinds:
        raise unsupported(f"{place}.type", f"{quoted(kind)} is not supported here; send text")
    return {**part, "type": kinds[kind]}


def entries(value: Any, place: str) -> list[dict[str, Any]]:
    """``value`` as a list of objects.

    Raises:
        ApiError: it is none.
    """
    if not isinstance(value, list):
        raise ApiError(400, "must be a list", INVALID_TYPE, place)
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise ApiError(400, "must be an object", INVALID_TYPE, f"{place}[{index}]")
    return value


def entries_of_text(value: Any, place: str) -> list[str]:
    """``value`` as a list of strings; raises ApiError where it is none."""
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ApiError(400, "must be a list of strings", INVALID_TYPE, place)
    return value


def required(fields: Mapping[str, Any], key: str, place: str = "") -> Any:
    """A field that must be there; raises ApiError."""
    if key not in fields:
        raise ApiError(400, "this field is required", MISSING, f"{place}.{key}" if place else key)
    return fields[key]


def quoted(text: str) -> str:
    """Foreign text for a message, cut."""
    return json.dumps(text if len(text) <= 64 else text[:64] + "...", ensure_ascii=False)


def _reached(message: Mapping[str, Any], key: str) -> bool:
    """The turn already has ``key`` or what comes behind it."""
    return any(later in message for later in _ORDER[_ORDER.index(key) :])
