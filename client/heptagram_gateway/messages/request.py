"""From the body of a Messages request to what the engine is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.fields import Sorted, mapping, number, sort_fields
from heptagram_gateway.messages.table import MESSAGES, SAME
from heptagram_gateway.messages.tools import read_choice, read_tools
from heptagram_gateway.messages.turns import read_turns
from heptagram_gateway.places import Places
from heptagram_gateway.turns import entries_of_text, required

_SWITCH: Final = "enable_thinking"
_THINKING: Final = ("enabled", "disabled", "adaptive")
_DISPLAYS: Final = ("summarized", "omitted")


@dataclass(frozen=True, slots=True)
class MessagesAsked:
    """``request`` goes to the engine; ``thinking`` is false where the answer must not show any."""

    fields: Sorted
    model: str | None
    stream: bool
    request: dict[str, Any]
    places: Places
    thinking: bool


def read_messages(body: Mapping[str, Any]) -> MessagesAsked:
    """Read the body.

    Raises:
        ApiError: a field has the wrong type, or asks for what is not there. The backend checks what is passed on.
    """
    fields = sort_fields(body, MESSAGES)
    required(fields.passed, "max_tokens")
    return _asked(fields, body)


def read_counted(body: Mapping[str, Any]) -> MessagesAsked:
    """Read the body of ``count_tokens``, which needs no ``max_tokens``: one token is made."""
    fields = sort_fields({**body, "max_tokens": 1}, MESSAGES)
    return _asked(fields, body)


def _asked(fields: Sorted, body: Mapping[str, Any]) -> MessagesAsked:
    passed, places = fields.passed, Places()
    tools = read_tools(passed.get("tools", []), places)
    thinking = passed.get("thinking", {})
    request: dict[str, Any] = {
        "messages": read_turns(passed, places),
        **({"tools": tools} if tools else {}),
        **{key: passed[key] for key in SAME if key in passed},
        **read_choice(passed.get("tool_choice", {}), places),
        **_stops(passed, places),
        **_output(passed, places),
    }
    shown = _think(request, thinking, places)
    return MessagesAsked(fields, body.get("model"), bool(body.get("stream")), request, places, shown)


def _stops(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    places.came_from("stop", "stop_sequences")
    stops = entries_of_text(passed.get("stop_sequences", []), "stop_sequences")
    return {"stop": stops} if stops else {}


def _output(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """``output_config``: how much effort, and a schema of the answer."""
    config = passed.get("output_config", {})
    mapping("output_config", config)
    places.came_from("reasoning_effort", "output_config.effort")
    made = {"reasoning_effort": config["effort"]} if "effort" in config else {}
    if "format" not in config:
        return made
    place = "output_config.format"
    mapping(place, config["format"])
    if required(config["format"], "type", place) != "json_schema":
        raise invalid(f"{place}.type", 'must be "json_schema"')
    places.came_from("response_format", place)
    places.came_from("response_format.json_schema", place)
    schema = {"name": "answer", "schema": required(config["format"], "schema", place)}
    return {**made, "response_format": {"type": "json_schema", "json_schema": schema}}


def _think(request: dict[str, Any], thinking: Any, places: Places) -> bool:
    """Write ``thinking`` into the request; whether it is to be shown. ``adaptive`` leaves it to the model's format."""
    mapping("thinking", thinking)
    if not thinking:
        return True
    kind = required(thinking, "type", "thinking")
    if kind not in _THINKING:
        raise unsupported("thinking.type", f"must be one of {', '.join(_THINKING)}")
    number("thinking.budget_tokens", thinking.get("budget_tokens", 0))
    if thinking.get("display", "summarized") not in _DISPLAYS:
        raise invalid("thinking.display", f"must be one of {', '.join(_DISPLAYS)}")
    if kind == "enabled":
        given = request.get("chat_template_kwargs", {})
        mapping("chat_template_kwargs", given)
        request["chat_template_kwargs"] = {_SWITCH: True, **given}
        places.came_from(f"chat_template_kwargs.{_SWITCH}", "thinking.type")
    elif kind == "disabled":
        if request.setdefault("reasoning_effort", "none") != "none":
            raise invalid("output_config.effort", "belongs to thinking, which is disabled; leave one of them out")
        places.came_from("reasoning_effort", "thinking.type")
    return bool(thinking.get("display") != "omitted")
