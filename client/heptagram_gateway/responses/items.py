"""``input`` and ``instructions``: from the items of a conversation to the messages of a chat. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.places import Places
from heptagram_gateway.turns import Turns, Words, entries, quoted, required, text_part
from heptagram_wire.errors import INVALID_TYPE

_WORDS: Final = Words(call_id="call_id", arguments="arguments", result_id="call_id", result="output")
_TEXT: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
Item = Mapping[str, Any]


def read_items(fields: Mapping[str, Any], places: Places) -> list[dict[str, Any]]:
    """The messages of ``instructions`` and ``input``.

    Raises:
        ApiError: an item of a kind that is not served here, or one without its fields. The backend checks the rest.
    """
    turns = Turns(places, _WORDS)
    places.came_from("messages", "input")
    if "instructions" in fields:
        turns.say("system", fields["instructions"], "instructions", "instructions")
    given = required(fields, "input")
    if isinstance(given, str):
        turns.say("user", given, "input", "input")
    else:
        for index, item in enumerate(entries(given, "input")):
            _read(turns, item, f"input[{index}]")
    return turns.finished()


def _read(turns: Turns, item: Item, place: str) -> None:
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        raise invalid(f"{place}.type", "must be a string", INVALID_TYPE)
    if kind not in _ITEMS:
        raise unsupported(
            f"{place}.type", f"items of type {quoted(kind)} are not supported here; send {', '.join(_ITEMS)}"
        )
    _ITEMS[kind](turns, item, place)


def _message(turns: Turns, item: Item, place: str) -> None:
    role = required(item, "role", place)
    content = _content(required(item, "content", place), f"{place}.content")
    if role == "assistant":
        turns.answer(content, place, f"{place}.content")
    else:
        turns.say(role, content, place, f"{place}.content")


def _content(value: Any, place: str) -> Any:
    """A text, or parts in chat's form."""
    if not isinstance(value, list):
        return value
    return [_part(part, f"{place}[{index}]") for index, part in enumerate(value)]


def _part(part: Any, place: str) -> Any:
    made = text_part(part, _TEXT, place)
    if not isinstance(made, dict):
        return made
    return {key: entry for key, entry in made.items() if key in ("type", "text", "refusal")}


def _call(turns: Turns, item: Item, place: str) -> None:
    function = {key: item[key] for key in ("name", "arguments", "namespace") if key in item}
    turns.call(required(item, "call_id", place), function, place)


def _result(turns: Turns, item: Item, place: str) -> None:
    output = _content(required(item, "output", place), f"{place}.output")
    turns.result(required(item, "call_id", place), output, place)


def _reasoning(turns: Turns, item: Item, place: str) -> None:
    """Its text, or else its summary. What another server has encrypted cannot be read here and is left out."""
    for key in ("content", "summary"):
        if text := _texts(item.get(key, []), f"{place}.{key}"):
            return turns.think(text, place, f"{place}.{key}")


def _texts(parts: Any, place: str) -> str:
    texts = [part.get("text", "") for part in entries(parts, place)]
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise invalid(f"{place}[{index}].text", "must be a string", INVALID_TYPE)
    return "\n".join(text for text in texts if text)


_ITEMS: Final[Mapping[str, Callable[[Turns, Item, str], None]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _result,
    "reasoning": _reasoning,
}
