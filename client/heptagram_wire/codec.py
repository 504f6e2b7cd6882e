"""JSON form of the events: one object an event, ``type`` first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, cast

from heptagram_wire.events import (
    FINISH_REASONS,
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    FinishReason,
    Ping,
    ReasoningDelta,
    SpeculativeStats,
    Start,
    Stats,
    TextDelta,
    UnknownEvent,
    Usage,
)

_TYPES: dict[str, type[Event]] = {
    "start": Start,
    "ping": Ping,
    "reasoning_delta": ReasoningDelta,
    "text_delta": TextDelta,
    "call_start": CallStart,
    "arguments_delta": ArgumentsDelta,
    "call_end": CallEnd,
    "failure": Failure,
}
_NAMES: dict[type[Event], str] = {kind: name for name, kind in _TYPES.items()}


def encode_event(event: Event) -> str:
    """Write an event as one line of JSON; a field that holds its default ``None`` or choice 0 is left out."""
    return json.dumps(_to_dict(event), ensure_ascii=False, separators=(",", ":"))


def decode_event(text: str | bytes) -> Event:
    """Read one event; a type that is not known becomes :class:`UnknownEvent`.

    Raises:
        ValueError: the text is not an event at all, or a known event lacks a field.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not an event: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError("not an event: no object with a string `type`")
    name = data["type"]
    if name == "finish":
        return _finish(data)
    kind = _TYPES.get(name)
    if kind is None:
        return UnknownEvent(type=name, choice=_choice(data))
    known = {spec.name for spec in fields(kind)}
    arguments = {key: value for key, value in data.items() if key in known}
    if isinstance(arguments.get("token_ids"), list):
        arguments["token_ids"] = tuple(arguments["token_ids"])
    try:
        return cast(Callable[..., Event], kind)(**arguments)
    except TypeError as error:
        raise ValueError(f"not a valid `{name}` event: {error}") from error


def _to_dict(event: Event) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"type": event.type}
    if isinstance(event, Finish):
        data: dict[str, Any] = {
            "type": "finish",
            "reason": event.reason,
            "usage": _usage_dict(event.usage),
            "stats": _stats_dict(event.stats),
        }
        return data | ({"choice": event.choice} if event.choice else {})
    data = {"type": _NAMES[type(event)]}
    for spec in fields(event):
        value = getattr(event, spec.name)
        if value is None or (spec.name == "choice" and value == 0):
            continue
        data[spec.name] = list(value) if isinstance(value, tuple) else value
    return data


def _usage_dict(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _stats_dict(stats: Stats) -> dict[str, Any]:
    data: dict[str, Any] = {
        spec.name: getattr(stats, spec.name) for spec in fields(stats) if spec.name != "speculative_decoding"
    }
    speculative = stats.speculative_decoding
    data["speculative_decoding"] = {
        "acceptance_histogram": list(speculative.acceptance_histogram),
        "num_draft_tokens": speculative.num_draft_tokens,
        "num_accepted_draft_tokens": speculative.num_accepted_draft_tokens,
        "num_spec_steps": speculative.num_spec_steps,
        "num_spec_tokens": speculative.num_spec_tokens,
        "mean_acceptance_length": speculative.mean_acceptance_length,
        "draft_acceptance_rate": speculative.draft_acceptance_rate,
    }
    return data


def _finish(data: Mapping[str, Any]) -> Finish:
    reason = data.get("reason")
    if reason not in FINISH_REASONS:
        raise ValueError(f"not a valid `finish` event: unknown reason {reason!r}")
    usage = data.get("usage") or {}
    stats = dict(data.get("stats") or {})
    speculative = stats.pop("speculative_decoding", None) or {}
    known = {spec.name for spec in fields(Stats)}
    return Finish(
        reason=cast(FinishReason, reason),
        usage=Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)),
        stats=Stats(
            **{key: value for key, value in stats.items() if key in known},
            speculative_decoding=SpeculativeStats(
                tuple(speculative.get("acceptance_histogram", (0,) * 8)), speculative.get("num_draft_tokens", 0)
            ),
        ),
        choice=_choice(data),
    )


def _choice(data: Mapping[str, Any]) -> int:
    choice = data.get("choice", 0)
    return choice if isinstance(choice, int) else 0
