"""``tools`` and ``tool_choice`` to chat's form. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.fields import Check, flag, mapping, only
from heptagram_gateway.places import Places
from heptagram_gateway.turns import entries, quoted, required
from heptagram_wire.errors import INVALID_TYPE

_FIELDS: Final = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
_CHECKED: Final[Mapping[str, Check]] = {
    "eager_input_streaming": flag,  # arguments always come as they are made
    "defer_loading": only(False, advice="all tools are told to the model at once; leave it out"),
    "allowed_callers": only([], ["direct"], advice='only the model calls tools; send ["direct"], or leave it out'),
    "input_examples": only([], advice="say them in the description"),
}
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def read_tools(value: Any, places: Places) -> list[dict[str, Any]]:
    """Read ``tools``.

    Raises:
        ApiError: a tool that Anthropic runs or defines itself, or one that is none. The backend checks the schemas.
    """
    return [_tool(tool, f"tools[{index}]", places) for index, tool in enumerate(entries(value, "tools"))]


def read_choice(value: Any, places: Places) -> dict[str, Any]:
    """``tool_choice`` and ``parallel_tool_calls`` of the chat request.

    Raises:
        ApiError: an unknown form.
    """
    mapping("tool_choice", value)
    if not value:
        return {}
    kind = required(value, "type", "tool_choice")
    one = value.get("disable_parallel_tool_use", False)
    flag("tool_choice.disable_parallel_tool_use", one)
    places.came_from("parallel_tool_calls", "tool_choice.disable_parallel_tool_use")
    parallel = {"parallel_tool_calls": False} if one else {}
    if kind == "tool":
        name = required(value, "name", "tool_choice")
        places.came_from("tool_choice.function", "tool_choice")
        return {"tool_choice": {"type": "function", "function": {"name": name}}, **parallel}
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise invalid("tool_choice.type", f"must be one of {', '.join([*_CHOICES, 'tool'])}")
    return {"tool_choice": _CHOICES[kind], **parallel}


def _tool(tool: Mapping[str, Any], place: str, places: Places) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if not isinstance(kind, str):
        raise invalid(f"{place}.type", "must be a string", INVALID_TYPE)
    if kind != "custom":
        raise unsupported(
            f"{place}.type", f"there is no tool {quoted(kind)} here; declare tools with an `input_schema` of your own"
        )
    for key, check in _CHECKED.items():
        if key in tool:
            check(f"{place}.{key}", tool[key])
    required(tool, "input_schema", place)
    places.came_from(f"{place}.function", place)
    places.came_from(f"{place}.function.parameters", f"{place}.input_schema")
    return {"type": "function", "function": {chat: tool[own] for own, chat in _FIELDS.items() if own in tool}}
