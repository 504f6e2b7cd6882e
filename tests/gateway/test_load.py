"""Many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from heptagram_wire.events import Finish, TextDelta, Usage
from tests.client.samples import START
from tests.gateway.front import Running, joined
from tests.gateway.scripted import ScriptedServer, play

PIECES = 50


@pytest.mark.full
def test_memory_stays_flat(front: Running, server: ScriptedServer) -> None:
    """Rounds of 200 requests, 32 at once. What a round leaves behind would grow with the rounds."""
    server.script = play([START], *[[TextDelta("word ")]] * PIECES, [Finish("stop", Usage(10, PIECES))])

    def ask(number: int) -> str:
        if number % 2:
            return str(front.post().json()["choices"][0]["message"]["content"])
        return joined(front.chunks(), "content")

    def round_of(count: int) -> int:
        with ThreadPoolExecutor(32) as pool:
            assert set(pool.map(ask, range(count))) == {"word " * PIECES}
        front.at_rest()
        server.requests.clear()
        front.log.clear()
        return psutil.Process().memory_info().rss

    round_of(200)
    before = round_of(200)
    for _ in range(3):
        after = round_of(200)
    assert after - before < 8 << 20


def test_four_mebibytes(front: Running, server: ScriptedServer) -> None:
    """Of the costliest JSON that the default limit admits; one byte more is refused."""
    room = (4 << 20) - len(b'{"model": "chat", "messages": [[]]}')
    full = b'{"model": "chat", "messages": [[]' + b",[]" * (room // 3) + b"]}"
    full += b" " * ((4 << 20) - len(full))
    with front.http() as client:
        assert client.post("/v1/chat/completions", content=full).status_code == 200
        assert client.post("/v1/chat/completions", content=full + b" ").status_code == 413
    [(_, request)] = server.requests
    assert len(request["messages"]) == room // 3 + 1
