"""``system`` and ``messages``: from blocks to the messages of a chat. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.places import Places
from heptagram_gateway.turns import Turns, Words, entries, quoted, required, text_part
from heptagram_wire.errors import INVALID_TYPE

_WORDS: Final = Words(call_id="id", arguments="input", result_id="tool_use_id", result="content")
_TEXT: Final = {"text": "text"}
_ERROR: Final = "Error: "
Block = Mapping[str, Any]
Placed = tuple[str, Block]


def read_turns(fields: Mapping[str, Any], places: Places) -> list[dict[str, Any]]:
    """The messages of ``system`` and ``messages``.

    Raises:
        ApiError: a block of a kind that is not served here, or one without its fields. The backend checks the rest.
    """
    turns = Turns(places, _WORDS)
    if "system" in fields:
        turns.say("system", _content(fields["system"], "system"), "system", "system")
    messages = entries(required(fields, "messages"), "messages")
    for index, message in enumerate(messages):
        _read(turns, message, f"messages[{index}]")
    if messages and messages[-1].get("role") == "assistant":
        raise unsupported(
            f"messages[{len(messages) - 1}]", "an answer cannot be begun by the caller; end with a user message"
        )
    return turns.finished()


def _read(turns: Turns, message: Mapping[str, Any], place: str) -> None:
    role, content = required(message, "role", place), required(message, "content", place)
    if not isinstance(role, str) or role not in _ROLES:
        raise invalid(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    kinds = _ROLES[role]
    if isinstance(content, str):
        return _say(turns, role, content, place, f"{place}.content")
    blocks = [(f"{place}.content[{i}]", block) for i, block in enumerate(entries(content, f"{place}.content"))]
    for kind, group in groupby(blocks, key=_kind):
        if kind == "text":
            _texts(turns, role, list(group), place)
        elif kind in kinds:
            for at, block in group:
                kinds[kind](turns, block, at)
        else:
            at, _ = next(group)
            raise unsupported(
                f"{at}.type", f"{quoted(kind)} is not supported in a {role} message; send {', '.join(['text', *kinds])}"
            )


def _kind(placed: Placed) -> str:
    place, block = placed
    kind = required(block, "type", place)
    if not isinstance(kind, str):
        raise invalid(f"{place}.type", "must be a string", INVALID_TYPE)
    return kind


def _texts(turns: Turns, role: str, blocks: Sequence[Placed], place: str) -> None:
    _say(turns, role, [_plain(block) for _, block in blocks], place, blocks[0][0])
    for part, (at, _) in enumerate(blocks):
        turns.part_came_from(part, at)


def _say(turns: Turns, role: str, content: Any, place: str, content_place: str) -> None:
    if role == "assistant":
        turns.answer(content, place, content_place)
    else:
        turns.say(role, content, place, content_place)


def _call(turns: Turns, block: Block, place: str) -> None:
    arguments = required(block, "input", place)
    if not isinstance(arguments, dict):
        raise invalid(f"{place}.input", "must be an object", INVALID_TYPE)
    function = {"name": required(block, "name", place), "arguments": arguments}
    turns.call(required(block, "id", place), function, place)


def _result(turns: Turns, block: Block, place: str) -> None:
    content = _content(block.get("content", ""), f"{place}.content")
    if block.get("is_error") is True:
        content = _marked(content)
    turns.result(required(block, "tool_use_id", place), content, place)


def _marked(content: Any) -> Any:
    """A failed result; a chat has no other way to say it."""
    if isinstance(content, str):
        return _ERROR + content
    first = content[0] if isinstance(content, list) and content else {"type": "text", "text": ""}
    rest = content[1:] if isinstance(content, list) else []
    text = first.get("text") if isinstance(first, dict) else None
    return [{**first, "text": _ERROR + text}, *rest] if isinstance(text, str) else content


def _thinking(turns: Turns, block: Block, place: str) -> None:
    text = required(block, "thinking", place)
    if not isinstance(text, str):
        raise invalid(f"{place}.thinking", "must be a string", INVALID_TYPE)
    if text:
        turns.think(text, place, f"{place}.thinking")


def _unreadable(turns: Turns, block: Block, place: str) -> None:
    """Thinking that another server has encrypted says nothing here."""


def _content(value: Any, place: str) -> Any:
    """A text, or parts in chat's form."""
    return list(_parts(value, place)) if isinstance(value, list) else value


def _parts(blocks: Sequence[Any], place: str) -> Iterator[Any]:
    for index, block in enumerate(blocks):
        part = text_part(block, _TEXT, f"{place}[{index}]")
        yield _plain(part) if isinstance(part, dict) else part


def _plain(part: Block) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key in ("type", "text")}


# The kinds of blocks that each role may have beside text.
_ROLES: Final[Mapping[str, Mapping[str, Callable[[Turns, Block, str], None]]]] = {
    "user": {"tool_result": _result},
    "assistant": {"tool_use": _call, "thinking": _thinking, "redacted_thinking": _unreadable},
    "system": {},
}
