"""Both fronts, synchronous and asyncio, against real servers that speak Triton's protocols."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from heptagram_client import (
    AsyncClient,
    ChatMessage,
    Client,
    ConnectError,
    GenerationError,
    HeptagramClientError,
    IdleTimeoutError,
    OverloadedError,
    ProtocolError,
    RequestRefusedError,
    ServerError,
)
from heptagram_wire.events import Event, Failure, Ping, TextDelta
from tests.client.fake_triton import Error, Item, Log, Script, endless, grpc_server, http_server
from tests.client.samples import CALL, REQUEST, START, TEXT, each_alone

Serve = Callable[[Script], AbstractContextManager[tuple[str, Log]]]
Complete = Callable[..., ChatMessage]


@pytest.fixture(params=[grpc_server, http_server], ids=["grpc", "http"])
def serve(request: pytest.FixtureRequest) -> Serve:
    server: Serve = request.param
    return server


def complete_sync(url: str, **options: Any) -> ChatMessage:
    with Client(url, **options) as client:
        return client.complete(REQUEST)


def complete_async(url: str, **options: Any) -> ChatMessage:
    async def run() -> ChatMessage:
        async with AsyncClient(url, **options) as client:
            return await client.complete(REQUEST)

    return asyncio.run(run())


@pytest.fixture(params=[complete_sync, complete_async], ids=["sync", "asyncio"])
def complete(request: pytest.FixtureRequest) -> Complete:
    function: Complete = request.param
    return function


def play(*items: Item | Exception) -> Script:
    def script(body: dict[str, Any]) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    return script


def test_a_request_and_its_answer(serve: Serve, complete: Complete) -> None:
    with serve(play(None, *each_alone(CALL), None)) as (url, log):
        message = complete(url)
    assert message.tool_calls[0].parse_arguments() == {"command": "ls"}
    assert log.requests == [REQUEST | {"stream": True}]


def test_all_events_in_one_response(serve: Serve, complete: Complete) -> None:
    with serve(play(TEXT)) as (url, _):
        assert complete(url).content == "Hello"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Error("in ensemble 'chat', [missing] messages: give one"), RequestRefusedError),
        (Error("in ensemble 'chat', [overloaded] -: try again", 503), OverloadedError),
        (Error("in ensemble 'chat', [internal] -: our fault", 500), GenerationError),
        (Error("Request for unknown model: 'chat' is not found", 404), ServerError),
    ],
)
def test_errors_before_the_first_response(
    serve: Serve, complete: Complete, error: Error, expected: type[HeptagramClientError]
) -> None:
    with serve(play(error)) as (url, _), pytest.raises(expected) as caught:
        complete(url)
    if isinstance(caught.value, RequestRefusedError):
        assert (caught.value.code, caught.value.param, caught.value.message) == ("missing", "messages", "give one")


def test_an_error_of_triton_after_some_events(serve: Serve, complete: Complete) -> None:
    with serve(play([START], Error("Stub process is not healthy."))) as (url, _), pytest.raises(ServerError):
        complete(url)


def test_a_failure_event(serve: Serve, complete: Complete) -> None:
    failure = Failure("invalid_output", "the call does not match its schema", "tools[0]")
    with serve(play([START], [failure])) as (url, _), pytest.raises(GenerationError) as caught:
        complete(url)
    assert (caught.value.code, caught.value.param) == ("invalid_output", "tools[0]")


@pytest.mark.parametrize("items", [[], [None], [[START]], [["{broken"]], [[*TEXT, Ping()]]])
def test_what_is_not_the_contract(serve: Serve, complete: Complete, items: list[Item]) -> None:
    with serve(play(*items)) as (url, _), pytest.raises(ProtocolError):
        complete(url)


def test_silence(serve: Serve, complete: Complete) -> None:
    release = threading.Event()

    def script(body: dict[str, Any]) -> Iterator[Item]:
        yield [START]
        release.wait(20)

    with serve(script) as (url, _):
        begin = time.monotonic()
        with pytest.raises(IdleTimeoutError, match=r"0\.2 s"):
            complete(url, idle_timeout=0.2)
        release.set()
        assert time.monotonic() - begin < 5


def test_pings_hold_the_stream_open(serve: Serve, complete: Complete) -> None:
    def script(body: dict[str, Any]) -> Iterator[Item]:
        for _ in range(5):
            time.sleep(0.1)
            yield [Ping()]
        yield TEXT

    with serve(script) as (url, _):
        assert complete(url, idle_timeout=0.4).content == "Hello"


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_no_server(scheme: str, complete: Complete) -> None:
    with socket.socket() as reserved:  # bound, not listening: nobody else takes the port
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectError, match="no connection"):
            complete(f"{scheme}://127.0.0.1:{reserved.getsockname()[1]}")


def test_leaving_the_block_cancels(serve: Serve) -> None:
    with serve(endless([START], TextDelta("a"))) as (url, log), Client(url) as client:
        with client.stream(REQUEST) as events:
            assert next(iter(events)) == START
        assert log.left.wait(5)


def test_leaving_the_loop_cancels(serve: Serve) -> None:
    with serve(endless([START], TextDelta("a"))) as (url, log), Client(url) as client:
        for _ in client.stream(REQUEST):
            break
        assert log.left.wait(5)


def test_closing_the_client_cancels_and_wakes_the_reader(serve: Serve) -> None:
    seen: list[Event] = []

    with serve(endless([START], Ping())) as (url, log):
        client = Client(url)
        reader = threading.Thread(target=lambda: seen.extend(client.stream(REQUEST)))
        reader.start()
        while not log.requests:
            time.sleep(0.01)
        client.close()
        reader.join(5)
        assert not reader.is_alive()
        assert log.left.wait(5)


def test_cancelling_the_task_cancels_the_request(serve: Serve) -> None:
    async def run(url: str, log: Log) -> None:
        async with AsyncClient(url) as client:
            task = asyncio.create_task(client.complete(REQUEST))
            while not log.requests:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(log.left.wait, 5)

    with serve(endless([START], Ping())) as (url, log):
        asyncio.run(run(url, log))


def test_leaving_an_asyncio_block_cancels(serve: Serve) -> None:
    async def run(url: str, log: Log) -> None:
        async with AsyncClient(url) as client:
            async with client.stream(REQUEST) as events:
                async for event in events:
                    assert event == START
                    break
            assert await asyncio.to_thread(log.left.wait, 5)

    with serve(endless([START], TextDelta("a"))) as (url, log):
        asyncio.run(run(url, log))


def test_many_streams_at_once(serve: Serve) -> None:
    def script(body: dict[str, Any]) -> Iterator[Item]:
        yield [START]
        time.sleep(0.05)
        yield [TextDelta(body["messages"][0]["content"])]
        yield [TEXT[-1]]

    async def run(url: str) -> list[ChatMessage]:
        async with AsyncClient(url) as client:
            requests = [{"messages": [{"role": "user", "content": str(n)}]} for n in range(12)]
            return await asyncio.gather(*(client.complete(request) for request in requests))

    with serve(script) as (url, _):
        assert [message.content for message in asyncio.run(run(url))] == [str(n) for n in range(12)]


def test_an_ordinary_end_is_no_cancel(complete: Complete) -> None:
    """The client waits a moment for FINAL, so that the server does not count a finished request as cancelled."""

    def script(body: dict[str, Any]) -> Iterator[Item]:
        yield TEXT
        time.sleep(0.1)

    with grpc_server(script) as (url, log):
        assert complete(url).content == "Hello"
        assert not log.left.wait(0.2)
