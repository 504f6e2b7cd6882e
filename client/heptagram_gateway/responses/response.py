"""The response object and its items, whole. Pure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_gateway.blocks import Block, Blocks, BlockState, Ended, Kind
from heptagram_gateway.chat.envelope import usage_of
from heptagram_gateway.errors import ApiError
from heptagram_wire.events import Event, Finish, TokenLogprob, TopLogprob

_STATUS: Final = {BlockState.OPEN: "in_progress", BlockState.DONE: "completed", BlockState.CUT: "incomplete"}
_PREFIX: Final[Mapping[Kind, str]] = {"text": "msg", "reasoning": "rs", "call": "fc"}
# Fields that the answer repeats from the request, with what stands there when they were not sent.
_REPEATED: Final[Mapping[str, Any]] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 0.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "user": None,
}


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a response before its output. ``key`` is in all its ids; ``names`` are those of namespaces."""

    model: str
    given: Mapping[str, Any]
    names: Mapping[str, tuple[str, str]]
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    created: int = field(default_factory=lambda: int(time.time()))

    def response(self, status: str, output: Iterable[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
        """The response object; ``more`` has what is known at its end."""
        return {
            "id": f"resp_{self.key}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            **{name: self.given.get(name, default) for name, default in _REPEATED.items()},
            "model": self.model,
            "output": list(output),
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            "usage": None,
            **more,
        }

    def finished(self, blocks: Blocks, finish: Finish) -> dict[str, Any]:
        """The response behind the last event."""
        cut = finish.reason == "length"
        told = usage_of(finish)
        return self.response(
            "incomplete" if cut or blocks.cut else "completed",
            map(self.item, blocks.told),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            usage=_usage(finish),
            metrics=told["metrics"],
        )

    def failed(self, blocks: Blocks, error: ApiError) -> dict[str, Any]:
        """The response that an error has ended."""
        told = {"code": "server_error", "message": error.message, "param": error.param, "type": error.code}
        return self.response("failed", map(self.item, blocks.told), error=told)

    def item_id(self, block: Block) -> str:
        return f"{_PREFIX[block.kind]}_{self.key}{block.index:02x}"

    def item(self, block: Block) -> dict[str, Any]:
        """A block as an item of ``output``; an open one has nothing in it yet."""
        status = _STATUS[block.state]
        if block.call is not None:
            space, name = self.names.get(block.call.name, (None, block.call.name))
            return {
                "type": "function_call",
                "id": self.item_id(block),
                "call_id": block.call.id,
                **({} if space is None else {"namespace": space}),
                "name": name,
                "arguments": block.text,
                "status": status,
            }
        parts = [] if block.state is BlockState.OPEN else [part_of(block.kind, block.text, block.logprobs)]
        if block.kind == "reasoning":
            return {"type": "reasoning", "id": self.item_id(block), "summary": [], "content": parts, "status": status}
        return {
            "type": "message", "id": self.item_id(block), "role": "assistant", "content": parts, "status": status
        }  # fmt: skip


def part_of(kind: Kind, text: str, logprobs: Iterable[TokenLogprob] = ()) -> dict[str, Any]:
    """The only part of a message or of a reasoning."""
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs_of(logprobs)}


def logprobs_of(entries: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """OpenAI's ``Logprob``; a token without a text has no ``bytes``."""
    return [_token(entry) | {"top_logprobs": [*map(_token, entry.top_logprobs)]} for entry in entries]


def _token(entry: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": entry.token, "bytes": list(entry.bytes or ()), "logprob": entry.logprob}


def response_of(head: Head, events: Iterable[Event]) -> dict[str, Any]:
    """The whole answer of a generation's events.

    Raises:
        ApiError: 502, the events do not fit each other.
    """
    blocks = Blocks()
    for event in events:
        for step in blocks.feed(event):
            if isinstance(step, Ended):
                return head.finished(blocks, step.finish)
    raise AssertionError("a generation ends with `finish` or raises")


def _usage(finish: Finish) -> dict[str, Any]:
    usage = finish.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
