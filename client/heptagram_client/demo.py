"""``heptagram demo``: one tool call over each front of a running server, checked against the tool's schema.

Exit code 0 only when the calls of all fronts are valid. Variable HEPTAGRAM_API_KEY: the key of the OpenAI front.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heptagram_client.client import Client
from heptagram_client.errors import HeptagramClientError, ProtocolError
from heptagram_client.fold import ToolCall
from heptagram_client.transports.base import Transport
from heptagram_wire.tensors import CHAT

_TIMEOUT_S = 60
TOOL_NAME = "shell"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
REQUEST: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Show the current directory."}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": TOOL_NAME,
                "description": "Run a shell command and return its output.",
                "parameters": SCHEMA,
                "strict": True,
            },
        }
    ],
    "tool_choice": "required",
    "temperature": 0,
    "max_tokens": 256,
}


def command(argv: list[str]) -> int:
    """Run ``heptagram demo``."""
    parser = argparse.ArgumentParser(prog="heptagram demo", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--grpc", default="localhost:8001", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--http", default="localhost:8000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--openai", default="localhost:9000", metavar="HOST:PORT", help="default: %(default)s, or none")
    options = parser.parse_args(argv)
    results = [try_front(front, f"{front}://{getattr(options, front)}") for front in ("grpc", "http")]
    if options.openai != "none":
        results.append(try_openai(options.openai))
    return 0 if all(results) else 1


def try_front(front: str, url: str, transport: Transport | None = None) -> bool:
    """Send the request over one of Triton's fronts and print its line; whether the call is valid."""
    return _told(front, lambda: _ask_triton(url, transport))


def try_openai(address: str) -> bool:
    """The same over the gateway at ``host:port``."""
    return _told("openai", lambda: _ask_openai(address))


def _told(front: str, ask: Callable[[], ToolCall]) -> bool:
    try:
        call = ask()
        arguments = call.parse_arguments()
    except (HeptagramClientError, OSError, http.client.HTTPException, ValueError) as error:
        sys.stderr.write(f"{front}: {error}\n")
        return False
    valid = call.name == TOOL_NAME and is_valid(arguments)
    sys.stdout.write(f"{front}: {call.name} {json.dumps(arguments)} {'valid' if valid else 'invalid'}\n")
    sys.stdout.flush()
    return valid


def _ask_triton(url: str, transport: Transport | None) -> ToolCall:
    with Client(url, transport=transport) as client:
        message = client.complete(REQUEST)
    return _only_one(message.tool_calls, message.finish_reason)


def _ask_openai(address: str) -> ToolCall:
    body = json.dumps({"model": CHAT, **REQUEST})
    key = os.environ.get("HEPTAGRAM_API_KEY")
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
    finally:
        connection.close()
    if response.status != 200:
        raise ProtocolError(f"status {response.status}: {text}")
    return _read_openai(json.loads(text))


def _read_openai(answer: Any) -> ToolCall:
    try:
        [choice] = answer["choices"]
        calls = choice["message"].get("tool_calls") or ()
        found = [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
        reason = choice["finish_reason"]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"no chat completion: {answer}") from error
    return _only_one(found, reason)


def _only_one(calls: Sequence[ToolCall], finish_reason: str) -> ToolCall:
    if len(calls) != 1 or finish_reason != "tool_calls":
        raise ProtocolError(f"not one finished call but {len(calls)} ({finish_reason})")
    return calls[0]


def is_valid(arguments: Mapping[str, Any]) -> bool:
    """Check against ``SCHEMA`` with jsonschema; a light install without it checks by hand what the schema says."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return set(arguments) == {"command"} and isinstance(arguments["command"], str)
    return bool(Draft202012Validator(SCHEMA).is_valid(arguments))
