"""``heptagram chat``: one prompt, the answer as it comes.

Exit codes: 0 the answer is complete (``stop`` or ``tool_calls``); 1 the run failed or the server is broken; 2 wrong
usage or an unreadable file; 3 the request was refused; 4 the server is not reachable, busy or silent; 5 cut by
``max_tokens``; 6 ended by its deadline or cancelled by the server; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from heptagram_client.client import Client
from heptagram_client.errors import (
    ConnectError,
    HeptagramClientError,
    IdleTimeoutError,
    OverloadedError,
    RequestRefusedError,
)
from heptagram_client.fold import ChatMessage, Folder
from heptagram_client.render import Renderer, wants_colour
from heptagram_client.transports.address import DEFAULT_URL
from heptagram_client.transports.base import Transport
from heptagram_wire.codec import encode_event
from heptagram_wire.tensors import CHAT

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED, EXIT_UNAVAILABLE, EXIT_LENGTH, EXIT_ENDED = range(7)
EXIT_INTERRUPTED = 130

_FINISH_CODES = {
    "stop": EXIT_OK,
    "tool_calls": EXIT_OK,
    "length": EXIT_LENGTH,
    "deadline": EXIT_ENDED,
    "cancelled": EXIT_ENDED,
}
_NOTES = {
    "length": "the answer was cut: max_tokens or the context is used up",
    "deadline": "the answer was cut: the deadline has passed",
    "cancelled": "the answer was cut: the request was cancelled on the server",
}


class UsageError(Exception):
    """An argument or a file that cannot be used."""


def command(argv: list[str]) -> int:
    """Run ``heptagram chat``."""
    return run(argv)


def run(argv: list[str], transport: Transport | None = None) -> int:
    """``command`` over any transport."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        request = build_request(options)
        client = Client(options.url, model=options.model, idle_timeout=options.idle_timeout, transport=transport)
    except (UsageError, ValueError) as error:
        return _fail(str(error), EXIT_USAGE)
    try:
        with client:
            return _talk(client, request, options)
    except KeyboardInterrupt:
        return _fail("interrupted; the request was cancelled", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has left. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except HeptagramClientError as error:
        return _fail(str(error), _error_code(error))


def build_request(options: argparse.Namespace) -> dict[str, Any]:
    """The chat request that the arguments describe.

    Raises:
        UsageError: the tools file cannot be read or holds no tools.
    """
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    system = [{"role": "system", "content": options.system}] if options.system is not None else []
    request: dict[str, Any] = {"messages": [*system, {"role": "user", "content": prompt}]}
    if options.tools is not None:
        request["tools"] = read_tools(options.tools)
    if options.tool_choice in ("required", "auto", "none"):
        request["tool_choice"] = options.tool_choice
    elif options.tool_choice is not None:
        request["tool_choice"] = {"type": "function", "function": {"name": options.tool_choice}}
    if options.max_tokens is not None:
        request["max_tokens"] = options.max_tokens
    if options.deadline_ms is not None:
        request["heptagram"] = {"deadline_ms": options.deadline_ms}
    return request


def read_tools(path: Path) -> list[Any]:
    """Tools from a file: a list of OpenAI tools or ``{"tools": [...]}``; what is in them the server checks.

    Raises:
        UsageError: the file cannot be read, is no JSON, or is neither of the two.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--tools {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--tools {path}: not JSON: {error}") from error
    tools = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(tools, list):
        raise UsageError(f'--tools {path}: neither a list of tools nor {{"tools": [...]}}')
    return tools


def _talk(client: Client, request: dict[str, Any], options: argparse.Namespace) -> int:
    folder = Folder()
    renderer = Renderer(sys.stdout, colour=wants_colour(sys.stdout))
    with client.stream(request) as events:
        try:
            for event in events:
                if options.stream and options.json:
                    _line(sys.stdout, encode_event(event))
                elif options.stream:
                    renderer.show(event)
                folder.feed(event)
        finally:
            renderer.close()
    message = folder.result()
    if not options.stream:
        _show_message(message, options)
    if message.finish_reason in _NOTES:
        sys.stderr.write(f"heptagram chat: {_NOTES[message.finish_reason]}\n")
    return _FINISH_CODES[message.finish_reason]


def _show_message(message: ChatMessage, options: argparse.Namespace) -> None:
    if options.json:
        _line(sys.stdout, json.dumps(asdict(message), ensure_ascii=False))
        return
    renderer = Renderer(sys.stdout, colour=wants_colour(sys.stdout))
    for event in message.events():
        renderer.show(event)
    renderer.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heptagram chat",
        description="Send one prompt to a Heptagram server and stream the answer.",
        epilog=" ".join((__doc__ or "").split("\n\n")[-1].split()).replace("``", ""),
    )
    parser.add_argument("prompt", help="the user message; - reads it from standard input")
    parser.add_argument("--url", default=DEFAULT_URL, metavar="HOST:PORT", help="gRPC front, or http://HOST:PORT")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--tools", type=Path, metavar="FILE", help='a list of OpenAI tools or {"tools": [...]}')
    parser.add_argument("--tool-choice", metavar="required|auto|none|NAME", help="NAME forces this tool")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="cut the answer after N tokens")
    parser.add_argument("--deadline-ms", type=int, metavar="N", help="end the run after N milliseconds")
    parser.add_argument("--no-stream", dest="stream", action="store_false", help="print the answer when it is complete")
    parser.add_argument("--json", action="store_true", help="one event a line; with --no-stream the whole message")
    parser.add_argument("--model", default=CHAT, help="the Triton model (default: %(default)s)")
    parser.add_argument(
        "--idle-timeout", type=float, default=30.0, metavar="S", help="give up after S seconds of silence"
    )
    return parser


def _error_code(error: HeptagramClientError) -> int:
    if isinstance(error, RequestRefusedError):
        return EXIT_REFUSED
    if isinstance(error, ConnectError | IdleTimeoutError | OverloadedError):
        return EXIT_UNAVAILABLE
    return EXIT_FAILED


def _line(out: TextIO, text: str) -> None:
    out.write(text + "\n")
    out.flush()


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"heptagram chat: {message}\n")
    return code
