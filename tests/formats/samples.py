"""Tools and requests that the tests of a format share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heptagram_backend.conversation import ChatRequest, Message, Tool
from heptagram_backend.formats.base import (
    CallArguments,
    CallBegin,
    CallFinished,
    OutputParser,
    Parsed,
    Reasoning,
    Text,
)
from heptagram_backend.schema import walk_parameters


def tool(name: str, schema: Mapping[str, Any] | None = None, *, enforced: bool = True) -> Tool:
    """A tool whose schema is enforced as it stands; :func:`walked` enforces what the schema walker makes of it."""
    parameters = schema if schema is not None else {"type": "object", "properties": {}, "additionalProperties": False}
    return Tool(name, f"Does {name}.", parameters, strict=enforced, enforced=parameters if enforced else None)


def walked(name: str, schema: Mapping[str, Any]) -> Tool:
    return replace(tool(name, schema), enforced=walk_parameters(dict(schema), "tools[0].function.parameters"))


def request(*messages: Message, **fields: Any) -> ChatRequest:
    return ChatRequest(messages or (Message("user", "Go."),), "smollm2", **fields)


def merged(pieces: list[Parsed]) -> list[Parsed]:
    """Neighbouring pieces of text, of reasoning and of arguments as one."""
    whole: list[Parsed] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if isinstance(piece, Text | Reasoning) and type(last) is type(piece):
            assert isinstance(last, Text | Reasoning)
            whole[-1] = type(piece)(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments):
            whole[-1] = CallArguments(last.text + piece.text)
        else:
            whole.append(piece)
    return whole


def parse(parser: OutputParser, *chunks: str) -> list[Parsed]:
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
    return merged([*pieces, *parser.flush("stop")])


def call(name: str, arguments: str) -> list[Parsed]:
    return [CallBegin(name), CallArguments(arguments), CallFinished()]
