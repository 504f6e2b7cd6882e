"""What sixteen clients of all kinds ask of a small cache, and what each must be told."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from heptagram_backend.server.process import Address
from heptagram_client import ChatMessage, Client, fold
from heptagram_client.errors import RequestRefusedError
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names

CLIENTS: Final = 16
ENGINE: Final = {"max_model_len": 512, "kv_cache_blocks": 17, "max_num_seqs": 8}
"""544 tokens for eight sequences that may have 512 each: they must make room for each other."""

_WORDS: Final = ("rain", "harbour", "seven", "lamp", "north", "paper", "river", "copper")
_REFUSED: Final[Mapping[str, Mapping[str, Any]]] = {
    codes.UNKNOWN_FIELD: {"temprature": 1},
    codes.INVALID_VALUE: {"temperature": 7},
    codes.INVALID_TYPE: {"seed": "one"},
    codes.CONTEXT_LENGTH: {"messages": [{"role": "user", "content": "rain " * 1200}]},
}


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One request and its end: read whole and compared with a replay, left after some events, late, or refused."""

    kind: str
    request: Mapping[str, Any]
    leave_after: int | None = None
    refused: str | None = None

    @property
    def repeats(self) -> bool:
        """The answer depends on nothing but the request."""
        return self.kind in ("free", "strict", "long")


@dataclass(slots=True)
class Played:
    """What happened, over all clients: how often each kind, and every answer that ``Ask.repeats`` got."""

    counts: Counter[str] = field(default_factory=Counter)
    answers: dict[Ask, set[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, ask: Ask, answer: str) -> None:
        with self.lock:
            self.counts[ask.kind] += 1
            if ask.repeats:
                self.answers.setdefault(ask, set()).add(answer)


def _chat(number: int, *, words: int = 12, **fields: Any) -> dict[str, Any]:
    text = " ".join(random.Random(number).choices(_WORDS, k=words))
    return {
        "messages": [{"role": "user", "content": f"Say something about {text}."}],
        "temperature": 0.9,
        "top_p": 0.95,
        "seed": number,
        "presence_penalty": 0.2 * (number % 2),
    } | fields


def _tool(number: int) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "place": {"type": "string", "maxLength": 8 + number},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 31}, "maxItems": 3},
        },
        "required": ["place", "days"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": f"plan_{number}", "strict": True, "parameters": schema}}


def _all() -> Mapping[str, Sequence[Ask]]:
    eight = range(8)
    endless = {"max_tokens": 500, "ignore_eos": True}
    return {
        "free": [Ask("free", _chat(n, max_tokens=100, ignore_eos=True)) for n in eight],
        "strict": [Ask("strict", _chat(n, max_tokens=60, tools=[_tool(n)], tool_choice="required")) for n in eight],
        "long": [Ask("long", _chat(n, words=280, max_tokens=8)) for n in range(4)],
        "leaving": [Ask("leaving", _chat(n, **endless), leave_after=n + 1) for n in eight],
        "reset": [
            Ask("reset", _chat(n, max_tokens=60, tools=[_tool(n)], tool_choice="required"), leave_after=n // 2)
            for n in eight
        ],
        "late": [Ask("late", _chat(n, heptagram={"deadline_ms": 100 + 300 * n}, **endless)) for n in eight],
        "refused": [Ask("refused", {**_chat(0), **fault}, refused=code) for code, fault in _REFUSED.items()],
    }


ASKS: Final = _all()
"""Every request that a client may send, by kind: few enough that each is sent often."""

_WEIGHTS: Final = {"free": 30, "strict": 20, "long": 6, "leaving": 14, "reset": 8, "late": 8, "refused": 14}


def play_until(end: float, address: Address, seed: int, played: Played) -> None:
    """All clients at once, until ``end`` of the monotonic clock; what has begun by then is read to its end."""

    def one(number: int) -> None:
        chosen = random.Random(seed * CLIENTS + number)
        with Client(urls_of(address)[number % 2], idle_timeout=120) as client:
            while time.monotonic() < end:
                [kind] = chosen.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
                ask = chosen.choice(ASKS[kind])
                played.add(ask, reset(address, ask) if kind == "reset" else send(client, ask))

    with ThreadPoolExecutor(CLIENTS) as workers:
        list(workers.map(one, range(CLIENTS)))


def urls_of(address: Address) -> tuple[str, str]:
    return f"grpc://{address.grpc_url}", f"http://{address.http_url}"


def reset(address: Address, ask: Ask) -> str:
    """Read so many messages of the HTTP front, and close with RST instead of FIN."""
    assert ask.leave_after is not None
    host, port = address.http_url.split(":")
    body = json.dumps({names.REQUEST: json.dumps(ask.request)})
    head = f"POST /v2/models/{names.CHAT}/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall((head + body).encode())
        seen = b""
        while seen.count(b"data: ") < ask.leave_after and (more := connection.recv(65536)):
            seen += more
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "reset"


def send(client: Client, ask: Ask) -> str:
    """Send one request, check its end, and give back all that a client can see of the answer."""
    if ask.refused is not None:
        with pytest.raises(RequestRefusedError) as caught:
            client.complete(ask.request)
        assert caught.value.code == ask.refused
        return ask.refused
    with client.stream(ask.request) as events:
        if ask.leave_after is not None:
            for _, _ in zip(range(ask.leave_after), events, strict=False):
                pass
            return "left"
        message = fold(events)
    assert message.finish_reason in (("deadline", "length") if ask.kind == "late" else ("stop", "tool_calls", "length"))
    return _seen(message)


def _seen(message: ChatMessage) -> str:
    calls = [(call.name, call.arguments, call.complete) for call in message.tool_calls]
    return repr((message.content, calls, message.finish_reason, message.usage.completion_tokens))
