"""From the body of a Responses request to what the engine is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.errors import invalid
from heptagram_gateway.fields import Check, Sorted, mapping, only, sort_fields
from heptagram_gateway.places import Places
from heptagram_gateway.responses.items import read_items
from heptagram_gateway.responses.table import RESPONSES, SAME
from heptagram_gateway.responses.tools import Tools, read_tools
from heptagram_gateway.turns import entries_of_text, quoted, required

_LOGPROBS: Final = "message.output_text.logprobs"
# What may be asked to come with an answer. Reasoning is no secret here; the rest belongs to tools that are not here.
_INCLUDED: Final = frozenset(
    {
        _LOGPROBS,
        "reasoning.encrypted_content",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    }
)
_NO_SUMMARY: Final = only("auto", advice='reasoning comes as it is, not summed up; send "auto", or leave it out')
_REASONING: Final[Mapping[str, Check]] = {
    "summary": _NO_SUMMARY,
    "generate_summary": _NO_SUMMARY,
    "context": only("auto", advice='the model decides; send "auto", or leave it out'),
    "mode": only("standard"),
}
_STREAM_OPTIONS: Final[Mapping[str, Check]] = {"include_obfuscation": only(False)}


@dataclass(frozen=True, slots=True)
class ResponsesAsked:
    """``request`` goes to the engine; ``given`` are the fields that the answer repeats, as the caller wrote them."""

    fields: Sorted
    model: str | None
    stream: bool
    request: dict[str, Any]
    places: Places
    tools: Tools
    given: dict[str, Any]


def read_responses(body: Mapping[str, Any]) -> ResponsesAsked:
    """Read the body.

    Raises:
        ApiError: a field has the wrong type, or asks for what is not there. The backend checks what is passed on.
    """
    fields = sort_fields(body, RESPONSES)
    passed, places = fields.passed, Places()
    _check(body.get("stream_options") or {}, "stream_options", _STREAM_OPTIONS)
    _check_included(passed.get("include", []))
    tools = read_tools(passed.get("tools", []), places)
    request: dict[str, Any] = {
        "messages": read_items(passed, places),
        **({"tools": tools.chat} if tools.chat else {}),
        **{key: passed[key] for key in SAME if key in passed},
        **_limit(passed, places),
        **_text(passed, places),
        **_reasoning(passed, places),
        **_logprobs(passed, places),
    }
    given = {**passed, "metadata": body.get("metadata") or {}, "user": body.get("user")}
    return ResponsesAsked(fields, body.get("model"), bool(body.get("stream")), request, places, tools, given)


def _limit(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    places.came_from("max_tokens", "max_output_tokens")
    return {"max_tokens": passed["max_output_tokens"]} if "max_output_tokens" in passed else {}


def _text(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """``text``: the format of the answer, and how long it should be."""
    text = passed.get("text", {})
    mapping("text", text)
    places.came_from("verbosity", "text.verbosity")
    made = {"verbosity": text["verbosity"]} if "verbosity" in text else {}
    return {**made, "response_format": _format(text["format"], places)} if "format" in text else made


def _format(given: Any, places: Places) -> dict[str, Any]:
    place = "text.format"
    mapping(place, given)
    places.came_from("response_format", place)
    places.came_from("response_format.json_schema", place)
    kind = required(given, "type", place)
    if kind != "json_schema":
        return {"type": kind}
    required(given, "name", place)
    return {"type": kind, "json_schema": {key: value for key, value in given.items() if key != "type"}}


def _reasoning(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    given = passed.get("reasoning", {})
    _check(given, "reasoning", _REASONING)
    places.came_from("reasoning_effort", "reasoning.effort")
    return {"reasoning_effort": given["effort"]} if "effort" in given else {}


def _logprobs(passed: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """They are told where ``include`` names them or the likeliest tokens are asked for, which come with them."""
    places.came_from("logprobs", "include")
    return {"logprobs": True} if passed.get("top_logprobs") or _LOGPROBS in passed.get("include", []) else {}


def _check(given: Any, place: str, checks: Mapping[str, Check]) -> None:
    mapping(place, given)
    for key, check in checks.items():
        if given.get(key) is not None:
            check(f"{place}.{key}", given[key])


def _check_included(given: Any) -> None:
    for index, name in enumerate(entries_of_text(given, "include")):
        if name not in _INCLUDED:
            raise invalid(f"include[{index}]", f"there is nothing called {quoted(name)} to include; leave it out")
