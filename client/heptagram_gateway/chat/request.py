"""From the body of a chat completion to what the engine is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heptagram_gateway.chat.table import CHAT
from heptagram_gateway.errors import invalid
from heptagram_gateway.fields import Sorted, flag, only, sort_fields


@dataclass(frozen=True, slots=True)
class ChatAsked:
    """``fields.passed`` is the request to the engine; ``usage``: the stream ends with a usage chunk; ``logprobs``: the
    backend has accepted that they are told, once it has answered."""

    fields: Sorted
    model: str | None
    stream: bool
    usage: bool
    logprobs: bool


def read_chat(body: Mapping[str, Any]) -> ChatAsked:
    """Read the body.

    Raises:
        ApiError: a field has the wrong type, or asks for what is not there. The backend checks what is passed on.
    """
    fields = sort_fields(body, CHAT)
    stream = bool(body.get("stream"))
    logprobs = body.get("logprobs") is True
    return ChatAsked(fields, body.get("model"), stream, read_usage(body, stream), logprobs)


def read_usage(body: Mapping[str, Any], stream: bool) -> bool:
    """``stream_options.include_usage``."""
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", 'belongs to "stream": true only; leave it out')
    for key, check in _STREAM_OPTIONS.items():
        if options.get(key) is not None:
            check(f"stream_options.{key}", options[key])
    return bool(options.get("include_usage"))


_STREAM_OPTIONS = {
    "include_usage": flag,
    "include_obfuscation": only(False),
    "continuous_usage_stats": only(False, advice="usage comes with the last chunk"),
}
