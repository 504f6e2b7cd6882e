"""``heptagram demo``: one tool call over each front of a running server, checked against the tool's schema.

Exit code 0 only when the calls of all fronts are valid.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from heptagram_client.client import Client
from heptagram_client.errors import HeptagramClientError, ProtocolError
from heptagram_client.transports.base import Transport

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
    options = parser.parse_args(argv)
    results = [try_front(front, f"{front}://{getattr(options, front)}") for front in ("grpc", "http")]
    return 0 if all(results) else 1


def try_front(front: str, url: str, transport: Transport | None = None) -> bool:
    """Send the request over one front and print its line; whether the call is valid."""
    try:
        with Client(url, transport=transport) as client:
            message = client.complete(REQUEST)
        if len(message.tool_calls) != 1 or message.finish_reason != "tool_calls":
            raise ProtocolError(f"not one finished call but {len(message.tool_calls)} ({message.finish_reason})")
        call = message.tool_calls[0]
        arguments = call.parse_arguments()
    except (HeptagramClientError, ValueError) as error:
        sys.stderr.write(f"{front}: {error}\n")
        return False
    valid = call.name == TOOL_NAME and is_valid(arguments)
    sys.stdout.write(f"{front}: {call.name} {json.dumps(arguments)} {'valid' if valid else 'invalid'}\n")
    sys.stdout.flush()
    return valid


def is_valid(arguments: Mapping[str, Any]) -> bool:
    """Check against ``SCHEMA`` with jsonschema; a light install without it checks by hand what the schema says."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return set(arguments) == {"command"} and isinstance(arguments["command"], str)
    return bool(Draft202012Validator(SCHEMA).is_valid(arguments))
