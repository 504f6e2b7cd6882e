"""Requests for tests: a small valid one, and what the parser makes of a changed one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.conversation import ChatRequest
from heptagram_backend.errors import RequestError
from heptagram_backend.requests import RequestLimits, enforce, parse_chat_request
from heptagram_wire.errors import WireError, parse_error

MODEL = "smol"
LIMITS = RequestLimits()


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def strict(schema: Any) -> dict[str, Any]:
    """A request that enforces ``schema`` as the only parameter of its only tool."""
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return {"tools": [tool(parameters=parameters, strict=True)], "tool_choice": "required"}


def body(**changes: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], **changes}


def parse(data: Any) -> ChatRequest:
    """Parse and walk; ``data`` is text, bytes, or an object that is written as JSON."""
    raw = data if isinstance(data, str | bytes) else json.dumps(data)
    return enforce(parse_chat_request(raw, LIMITS, MODEL))


def refused(data: Any) -> WireError:
    """The error that a request meets. It must survive the way through Triton as text."""
    with pytest.raises(RequestError) as caught:
        parse(data)
    wire = caught.value.wire
    assert parse_error(f"in ensemble 'chat', {wire.format()}") == wire
    for foreign in ("Traceback", "json.", "NoneType", "<class", "object at 0x", "Expecting"):
        assert foreign not in wire.message
    return wire
