"""``tools``: functions, flat or in namespaces, to chat's form. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.fields import Check, only
from heptagram_gateway.places import Places
from heptagram_gateway.turns import entries, quoted, required
from heptagram_wire.errors import INVALID_TYPE

_FUNCTION: Final = ("name", "description", "parameters", "strict")
_REFUSED: Final[Mapping[str, Check]] = {
    "async": only(False),
    "defer_loading": only(False, advice="all tools are told to the model at once; leave it out"),
    "allowed_callers": only([], ["direct"], advice='only the model calls tools; send ["direct"], or leave it out'),
    "output_schema": only(advice="say it in the description"),
}


@dataclass(frozen=True, slots=True)
class Tools:
    """``chat`` are the tools in chat's form, ``names`` the namespace and name of each qualified name."""

    chat: list[dict[str, Any]]
    names: dict[str, tuple[str, str]]


def read_tools(value: Any, places: Places) -> Tools:
    """Read ``tools``.

    Raises:
        ApiError: a tool that OpenAI runs itself, or one that is none. The backend checks names and schemas.
    """
    tools = Tools([], {})
    for index, tool in enumerate(entries(value, "tools")):
        place = f"tools[{index}]"
        kind = required(tool, "type", place)
        if kind == "function":
            _add(tools, tool, place, places)
        elif kind == "namespace":
            _add_all(tools, tool, place, places)
        else:
            raise _not_here(kind, place)
    return tools


def _add_all(tools: Tools, space: Mapping[str, Any], place: str, places: Places) -> None:
    name = required(space, "name", place)
    if not isinstance(name, str):
        raise invalid(f"{place}.name", "must be a string", INVALID_TYPE)
    named = {"name": name, **({"description": space["description"]} if "description" in space else {})}
    for index, tool in enumerate(entries(required(space, "tools", place), f"{place}.tools")):
        inner = f"{place}.tools[{index}]"
        if required(tool, "type", inner) != "function":
            raise _not_here(tool["type"], inner)
        places.came_from(f"tools[{len(tools.chat)}].namespace", place)
        tools.names[f"{name}::{tool.get('name')}"] = (name, str(tool.get("name")))
        _add(tools, tool, inner, places, namespace=named)


def _add(tools: Tools, tool: Mapping[str, Any], place: str, places: Places, **more: Any) -> None:
    for key, check in _REFUSED.items():
        if key in tool:
            check(f"{place}.{key}", tool[key])
    chat = f"tools[{len(tools.chat)}]"
    places.came_from(chat, place)
    places.came_from(f"{chat}.function", place)
    function = {key: tool[key] for key in _FUNCTION if key in tool}
    tools.chat.append({"type": "function", "function": function, **more})


def _not_here(kind: Any, place: str) -> Exception:
    if not isinstance(kind, str):
        return invalid(f"{place}.type", "must be a string", INVALID_TYPE)
    return unsupported(
        f"{place}.type", f"there is no tool {quoted(kind)} here; declare functions and run them yourself"
    )
