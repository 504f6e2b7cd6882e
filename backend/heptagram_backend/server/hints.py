"""What ``heptagram serve`` tells a person once it is ready: where everything is, and first requests to try."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any

from heptagram_backend.server.gateway import Front
from heptagram_backend.server.process import Address, ServerProcess

FRONT_MODEL = "chat"
_KEY_VARIABLE = "HEPTAGRAM_API_KEY"
_MESSAGES: Mapping[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}]}


def where(server: ServerProcess, gateway: Front) -> str:
    """The addresses and the logs."""
    address = server.address
    front = f"OpenAI http://{gateway.netloc}/v1   " if gateway.netloc else ""
    logs = " ".join(str(log) for log in (server.log, gateway.log) if log)
    fronts = f"gRPC {address.grpc_url}   HTTP http://{address.http_url}   metrics {address.metrics_url}"
    return f"{front}{fronts}\nlog  {logs}\n"


def first_requests(address: Address, gateway: Front) -> str:
    """Requests to try, as they can be pasted into a shell."""
    body = json.dumps({"request": json.dumps(_MESSAGES)})
    return (
        "\nTry, in another terminal:\n"
        f"  {_client_program()} chat 'Say hello.' --url {address.grpc_url}\n"
        f"{_openai_request(gateway.netloc) if gateway.netloc else ''}"
        f"  curl -sN http://{address.http_url}/v2/models/{FRONT_MODEL}/generate_stream -d {shlex.quote(body)}\n"
    )


def how_to_stop() -> str:
    """A job in the background of a script hears no Ctrl-C: the shell had it ignored."""
    how = f"kill {os.getpid()}" if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else "Ctrl-C"
    return f"\n{how} stops the server.\n"


def _openai_request(netloc: str) -> str:
    """The key stays in its variable: what is printed may be kept."""
    key = f'-H "Authorization: Bearer ${_KEY_VARIABLE}" ' if os.environ.get(_KEY_VARIABLE) else ""
    body = json.dumps({"model": FRONT_MODEL, **_MESSAGES})
    return (
        f"  curl -s http://{netloc}/v1/chat/completions -H 'Content-Type: application/json' {key}"
        f"-d {shlex.quote(body)}\n"
    )


def _client_program() -> str:
    """How to call ``heptagram`` from this folder: by name if it is on PATH, else the script beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), "heptagram")
    return "heptagram" if shutil.which("heptagram") else min(beside, os.path.relpath(beside), key=len)
