"""Requests as JSON text."""

from __future__ import annotations

import json

import pytest

from heptagram_wire.requests import ChatRequest, encode_request


def test_a_typed_request_is_plain_json() -> None:
    request: ChatRequest = {
        "messages": [{"role": "user", "content": "Grüße"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "heptagram": {"deadline_ms": 1000, "num_speculative_tokens": 7},
    }
    text = encode_request(request)
    assert json.loads(text) == request
    assert "Grüße" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1, 2}])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        encode_request({"messages": [], "user": value})


def test_a_request_that_contains_itself_is_refused() -> None:
    request: dict[str, object] = {}
    request["self"] = request
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        encode_request(request)
