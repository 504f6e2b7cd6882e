"""The requests: a fixed sample of BFCL v4, as tool calls and as answers under one tool's schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.talk import CHAT, CODE, MCP
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_wire.requests import encode_request
from tests.conformance import bfcl

TOOLSETS: Final = Path(__file__).parents[1] / "tests/data/toolsets"

_SPARE: Final = 4  # of five prompts at most four have a tool that is refused


def tool_calls(count: int, *, max_tokens: int) -> list[dict[str, Any]]:
    """Chat requests that demand one call of one of the prompt's tools."""
    return [
        {
            "messages": [{"role": "user", "content": prompt.text}],
            "tools": list(prompt.tools),
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": max_tokens,
        }
        for prompt in bfcl.sample(count)
    ]


def answers(count: int, *, max_tokens: int) -> list[dict[str, Any]]:
    """Chat requests for the arguments of a prompt's first tool, as a plain JSON answer: what every peer can do."""
    return [_answer(prompt, max_tokens) for prompt in bfcl.sample(count)]


def _answer(prompt: bfcl.Prompt, max_tokens: int) -> dict[str, Any]:
    function = prompt.tools[0]["function"]
    schema = closed(function["parameters"])
    text = (
        f"{prompt.text}\n\nAnswer with a JSON object only, the arguments of the function {function['name']} "
        f"({function['description']}). Its JSON Schema:\n{json.dumps(schema)}"
    )
    return {
        "messages": [{"role": "user", "content": text}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "arguments", "schema": schema, "strict": True},
        },
        "max_tokens": max_tokens,
    }


def closed(schema: Any) -> Any:
    """``schema`` with every object closed: what we enforce, said so that peers enforce the same."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **shut} if shut.get("type") == "object" and "properties" in shut else shut


def prepared(preprocessor: Preprocessor, count: int, *, max_tokens: int) -> list[GenerationRequest]:
    """The first ``count`` tool calls of the sample that are served strictly, ready to run."""
    found: list[GenerationRequest] = []
    for request in _served(preprocessor, tool_calls(count * _SPARE, max_tokens=max_tokens)):
        found.append(request)
        if len(found) == count:
            return found
    raise ValueError(f"only {len(found)} of the sample's prompts are served; lower the count of {count}")


def _served(preprocessor: Preprocessor, requests: list[dict[str, Any]]) -> Iterator[GenerationRequest]:
    for request in requests:
        try:
            yield preprocessor.prepare(encode_request(request))
        except RequestError:  # a tool whose schema cannot be enforced
            continue


def by_kind(preprocessor: Preprocessor, count: int, *, max_tokens: int) -> dict[str, list[GenerationRequest]]:
    """``count`` prompts of each kind that no drafter of ours was trained on: BFCL's evaluation files, sets of real MCP
    servers, talk, code."""
    made = {
        "MCP": mcp_calls(count * _SPARE, max_tokens=max_tokens),
        "chat": [_said(text, max_tokens) for text in CHAT[:count]],
        "code": [_said(text, max_tokens) for text in CODE[:count]],
    }
    kinds = {kind: list(_served(preprocessor, requests))[:count] for kind, requests in made.items()}
    return {"BFCL": prepared(preprocessor, count, max_tokens=max_tokens), **kinds}


def mcp_calls(count: int, *, max_tokens: int) -> list[dict[str, Any]]:
    """Demands for one call of three tools of a server."""
    return [
        {
            "messages": [{"role": "user", "content": text}],
            "tools": _some_tools(server, place),
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": max_tokens,
        }
        for place, (server, text) in enumerate(MCP[:count])
    ]


def _some_tools(server: str, place: int) -> list[Any]:
    tools: list[Any] = json.loads((TOOLSETS / f"{server}.json").read_text(encoding="utf-8"))
    return random.Random(place).sample(tools, min(3, len(tools)))


def _said(text: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}


def ordinary(request: GenerationRequest) -> GenerationRequest:
    """The same request without any constraint."""
    return replace(request, constraint=None, trigger=None, output=replace(request.output, parse_calls=False))
