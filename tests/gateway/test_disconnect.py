"""A client that leaves takes its generation with it, streaming or not, at any moment."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from heptagram_client.transports.base import TextResponse
from heptagram_wire.events import Event, Ping, TextDelta
from tests.client.samples import START, TEXT
from tests.gateway.front import HELLO, Running, running
from tests.gateway.scripted import ScriptedServer, endless, play, told


def send(front: Running, path: str = "/v1/chat/completions", **body: Any) -> socket.socket:
    client = front.connect()
    data = json.dumps({"model": "chat", "messages": HELLO, **body}).encode()
    client.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return client


def abort(client: socket.socket) -> None:
    """Close with a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("end", [socket.socket.close, abort])
@pytest.mark.parametrize("repeat", [Ping(), TextDelta("a")])
def test_leaving_cancels(front: Running, server: ScriptedServer, stream: bool, end: Any, repeat: Event) -> None:
    server.script = endless([START], repeat=repeat)
    client = send(front, stream=stream)
    front.wait(lambda: server.live == 1)
    time.sleep(0.05)
    end(client)
    front.at_rest()
    assert server.left == 1
    assert front.lines(1)[0]["status"] == (200 if stream else 499)


def test_leaving_before_start_cancels(front: Running, server: ScriptedServer) -> None:
    server.script = play(60.0)
    client = send(front, stream=True)
    front.wait(lambda: server.live == 1)
    client.close()
    front.at_rest()
    assert server.left == 1


def test_leaving_in_the_middle_of_the_body(front: Running, server: ScriptedServer) -> None:
    client = front.connect()
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    front.wait(lambda: front.services is not None and front.services.gate.running == 1)
    client.close()
    front.at_rest()
    assert not server.requests


def test_leaving_a_completion_cancels(front: Running, server: ScriptedServer) -> None:
    async def slowly(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
        while True:
            yield told("a")
            await asyncio.sleep(0.01)

    server.texts = slowly
    client = send(front, "/v1/completions", prompt=["a", "b", "c"], stream=True)
    front.wait(lambda: server.live == 3)
    client.close()
    front.at_rest()
    assert server.left == 3


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_ordinary_end_is_no_cancel(front: Running, server: ScriptedServer, path: str, stream: bool) -> None:
    """The client leaves at once behind the last event, as most do; the server's own end comes later.

    A cancel there makes tritonserver 2.51 hold the model for ever.
    """

    async def texts(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
        yield told("Hello", "stop")
        await asyncio.sleep(0.1)
        yield TextResponse(final=True)

    server.script, server.texts = play(TEXT, 0.1), texts
    client = send(front, path, prompt="a", stream=stream)
    received = b""
    while (b"[DONE]\n\n" if stream else b'"Hello"') not in received:
        received += client.recv(65_536)
    client.close()
    front.at_rest()
    assert front.lines(1)[0]["status"] == 200
    assert server.left == 0


def test_a_connection_serves_several_requests(front: Running) -> None:
    with front.http() as client:
        for stream in (True, False, True):
            body = {"model": "chat", "messages": HELLO, "stream": stream}
            assert client.post("/v1/chat/completions", json=body).status_code == 200


def test_a_hundred_random_disconnects_leave_nothing(front: Running, server: ScriptedServer) -> None:
    server.script = endless([START], repeat=TextDelta("word "), every=0.002)

    def visit(seed: int) -> None:
        order = random.Random(seed)
        client = send(front, stream=order.random() < 0.7)
        time.sleep(order.random() * 0.05)
        abort(client) if order.random() < 0.5 else client.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(visit, range(100)))
    front.at_rest()
    assert server.left == len(server.requests)
    server.script = play(TEXT)
    assert front.post().json()["choices"][0]["message"]["content"] == "Hello"


def test_a_reader_that_takes_nothing_is_dropped() -> None:
    """Until then what waits for it is bounded: the front reads the next event when the last one is on its way."""
    piece = TextDelta("x" * 10_000)
    with running(endless([START], repeat=piece, every=0.0), write_timeout=0.3) as front:
        client = send(front, stream=True)
        front.wait(lambda: front.server.live == 1)
        front.at_rest()
        assert front.server.left == 1
        client.close()


def test_a_slow_reader_gets_everything() -> None:
    pieces = [[TextDelta("x" * 5_000)] for _ in range(200)]
    with running(play([START], *pieces, [TEXT[-1]]), write_timeout=5.0) as front:
        client = send(front, stream=True)
        received = b""
        while b"[DONE]" not in received[-100:]:
            received += client.recv(65_536)
            time.sleep(0.001)
        assert received.count(b"x" * 5_000) == 200
        client.close()
