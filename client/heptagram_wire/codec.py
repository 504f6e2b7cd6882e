"""JSON form of the events: one object an event, ``type`` first.

Reading is strict about what is known (a field of the wrong type is refused) and silent about what is not (a new type
becomes :class:`UnknownEvent`, a new field is dropped), so that an older client survives a newer server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, cast, get_args, get_origin, get_type_hints

from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ChoiceEnd,
    Event,
    Failure,
    Finish,
    Ping,
    ReasoningDelta,
    SpeculativeStats,
    Start,
    TextDelta,
    TokenLogprob,
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
    "choice_end": ChoiceEnd,
    "finish": Finish,
    "failure": Failure,
}
_NAMES: dict[type[Event], str] = {kind: name for name, kind in _TYPES.items()}
EVENT_TYPES = frozenset(_TYPES)

# Sent for readers of the raw JSON; our own reader computes them again.
_DERIVED: dict[type, tuple[str, ...]] = {
    Usage: ("total_tokens",),
    SpeculativeStats: (
        "num_accepted_draft_tokens",
        "num_accepted_tokens_per_pos",
        "num_spec_steps",
        "num_spec_tokens",
        "mean_acceptance_length",
        "draft_acceptance_rate",
    ),
}


def encode_event(event: Event) -> str:
    """Write an event as one line of JSON; a field that holds its default ``None`` or choice 0 is left out."""
    data = _plain(event)
    if not isinstance(event, UnknownEvent):
        data = {"type": _NAMES[type(event)]} | data
    return _ENCODER.encode(data)


def encode_logprobs(entries: Iterable[TokenLogprob]) -> str:
    """Write entries as the deltas hold them, as one line of JSON: a list."""
    return _ENCODER.encode([_plain(entry) for entry in entries])


def decode_logprobs(text: str | bytes) -> tuple[TokenLogprob, ...]:
    """Read what :func:`encode_logprobs` wrote.

    Raises:
        ValueError: the text is not that.
    """
    try:
        return cast(tuple[TokenLogprob, ...], _value(tuple[TokenLogprob, ...], _parse(text), "logprobs"))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"not log probabilities: {error}") from error


def decode_event(text: str | bytes) -> Event:
    """Read one event; a type that is not known becomes :class:`UnknownEvent`.

    Raises:
        ValueError: the text is not an event at all, or a known event lacks a field or holds a wrong one.
    """
    data = _parse(text)
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError("not an event: no object with a string `type`")
    name = data["type"]
    kind = _TYPES.get(name)
    if kind is None:
        choice = data.get("choice", 0)
        return UnknownEvent(type=name, choice=choice if type(choice) is int else 0)
    try:
        return cast(Event, _read(kind, data))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not a valid `{name}` event: {error}") from error


def decode_events(value: str | bytes | Iterable[str | bytes]) -> tuple[Event, ...]:
    """Read the value of output ``events``: an array, or the bare string that HTTP makes of a one-element array.

    Raises:
        ValueError: an element is not an event.
    """
    elements = (value,) if isinstance(value, str | bytes) else value
    return tuple(decode_event(element) for element in elements)


def _parse(text: str | bytes) -> Any:
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        return _DECODER.decode(decoded)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not an event: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# `json.dumps` and `json.loads` would make new ones for each event.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _plain(value: object) -> Any:
    """Plain JSON data of an event or of a part of one."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    kind = type(value)
    items = ((name, getattr(value, name)) for name in _field_names(kind))
    data = {name: _plain(item) for name, item in items if item is not None and not (name == "choice" and item == 0)}
    return data | {name: getattr(value, name) for name in _DERIVED.get(kind, ())}


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(kind))


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _read(kind: type, data: Mapping[str, Any]) -> Any:
    """Build a dataclass from JSON data; ``null`` counts as absent."""
    hints = _hints(kind)
    values = {name: _value(hint, data[name], name) for name, hint in hints.items() if data.get(name) is not None}
    return kind(**values)


def _value(hint: Any, value: Any, name: str) -> Any:
    """Check one JSON value against the type of its field."""
    if type(None) in get_args(hint):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if hint in (str, int) and type(value) is hint:
        return value
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(get_args(hint)[0], item, name) for item in value)
    if get_origin(hint) is Literal and isinstance(value, str) and value in get_args(hint):
        return value
    if is_dataclass(hint) and isinstance(value, dict):
        return _read(cast(type, hint), value)
    raise ValueError(f"field `{name}` cannot be {value!r:.80}")
