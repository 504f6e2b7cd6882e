"""The ordered end: what runs may finish, nobody new gets in, and what is cut is told so."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from heptagram_gateway.errors import ApiError
from heptagram_gateway.gate import Gate
from heptagram_wire.events import Ping, TextDelta
from tests.client.samples import START, TEXT
from tests.gateway.front import Running, data_of, joined, running
from tests.gateway.scripted import ScriptedServer, endless
from tests.gateway.test_errors import error_of


def end(front: Running) -> None:
    assert front.front is not None
    front.call(front.front.end)


def draining(front: Running) -> bool:
    return front.get("/health/ready").status_code == 503


def test_what_runs_finishes() -> None:
    go = threading.Event()

    async def script(request: dict[str, Any]) -> Any:
        yield [START]
        while not go.is_set():
            await asyncio.sleep(0.01)
            yield [Ping()]
        yield TEXT[1:]

    with running(script) as front, ThreadPoolExecutor(2) as pool:
        streamed, whole = pool.submit(front.chunks), pool.submit(front.post)
        front.wait(lambda: front.server.live == 2)
        end(front)
        front.wait(lambda: draining(front))
        for stream in (True, False):
            answer = front.post(stream=stream)
            assert (answer.status_code, error_of(answer)["code"]) == (503, "draining")
            assert answer.headers["retry-after"]
        assert front.get("/health").status_code == 200
        go.set()
        assert joined(streamed.result(), "content") == "Hello"
        assert whole.result().json()["choices"][0]["message"]["content"] == "Hello"
        assert front.server.left == 0


def test_what_goes_on_too_long_is_told() -> None:
    script = endless([START], [TextDelta("a")], repeat=Ping())
    with running(script, drain=0.2) as front, ThreadPoolExecutor(2) as pool:
        streamed = pool.submit(front.post, stream=True)
        whole = pool.submit(front.post)
        front.wait(lambda: front.server.live == 2)
        end(front)
        chunks = data_of(streamed.result().text)
        assert chunks[-2]["error"]["code"] == "draining"
        assert chunks[-1] == "[DONE]"
        assert (whole.result().status_code, error_of(whole.result())["code"]) == (503, "draining")
        assert front.server.left == 2


def test_a_second_signal_does_not_wait() -> None:
    with running(endless([START], repeat=Ping()), drain=600.0) as front, ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(front.post, stream=True)
        front.wait(lambda: front.server.live == 1)
        end(front)
        end(front)
        assert data_of(streamed.result().text)[-1] == "[DONE]"


def test_the_gate() -> None:
    async def run() -> None:
        gate = Gate(2)
        assert await gate.wait_idle(0)
        with gate.admit(), gate.admit():
            assert gate.running == 2
            with pytest.raises(ApiError, match="2 requests"), gate.admit():
                pass
            assert not await gate.wait_idle(0.01)
            gate.drain()
        assert await gate.wait_idle(1)
        with pytest.raises(ApiError, match="shutting down"), gate.admit():
            pass
        assert gate.running == 0

    asyncio.run(run())


def test_a_completion_that_is_cut() -> None:
    from tests.gateway.test_completions import answering

    server = ScriptedServer(endless([START], repeat=Ping()), answering(60.0))
    with running(server.script, server.texts, drain=0.2) as front, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(front.post, "/v1/completions", prompt="a", stream=True)
        front.wait(lambda: front.server.live == 1)
        end(front)
        assert data_of(asked.result().text)[-2]["error"]["code"] == "draining"
