"""Streams over the replay and the in-process transport."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from heptagram_client import (
    AsyncClient,
    Client,
    ConnectError,
    IdleTimeoutError,
    ProtocolError,
    RequestRefusedError,
)
from heptagram_client.transports.address import Address, parse_url
from heptagram_client.transports.base import Response
from heptagram_client.transports.memory import InProcessTransport, ReplayTransport, Step, response_of
from heptagram_client.transports.threaded import ThreadedTransport
from heptagram_wire.events import Event, Failure, Finish, Ping, TextDelta, UnknownEvent
from tests.client.samples import CALL, REQUEST, START, TEXT, each_alone


class Handler:
    """An in-process server that counts what is running."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.running = 0
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, model: str, request: dict[str, Any]) -> Iterator[Sequence[Event]]:
        self.seen.append((model, request))
        self.running += 1
        try:
            for event in self.events:
                yield [event]
        finally:
            self.running -= 1


def test_a_stream_gives_every_event() -> None:
    handler = Handler([*CALL[:-1], UnknownEvent("new"), CALL[-1]])
    with Client(model="other", transport=InProcessTransport(handler)) as client, client.stream(REQUEST) as events:
        assert list(events) == handler.events
    assert handler.seen == [("other", REQUEST)]
    assert handler.running == 0


def test_nothing_is_sent_before_the_stream_is_entered() -> None:
    transport = ReplayTransport([TEXT])
    with Client(transport=transport) as client:
        stream = client.stream(REQUEST)
        assert transport.requests == []
        with stream:
            assert len(transport.requests) == 1
    assert transport.closed


def test_leaving_early_cancels() -> None:
    handler = Handler(TEXT)
    with Client(transport=InProcessTransport(handler)) as client:
        with client.stream(REQUEST) as events:
            next(iter(events))
        assert handler.running == 0
        for _ in client.stream(REQUEST):
            assert handler.running == 1
            break
        gc.collect()
        assert handler.running == 0
        with pytest.raises(ZeroDivisionError), client.stream(REQUEST) as events:
            sum(1 // (event != START) for event in events)
        assert handler.running == 0


def test_closing_the_client_closes_its_streams() -> None:
    handler = Handler(TEXT)
    client = Client(transport=InProcessTransport(handler))
    events = iter(client.stream(REQUEST))
    assert next(events) == START
    client.close()
    assert handler.running == 0
    assert list(events) == []
    with pytest.raises(RuntimeError, match="closed"):
        client.stream(REQUEST)


def test_a_stream_is_read_once() -> None:
    with Client(transport=ReplayTransport([TEXT])) as client:
        stream = client.stream(REQUEST)
        assert list(stream) == TEXT
        with pytest.raises(RuntimeError, match="once"):
            list(stream)


def test_a_failure_is_an_event_of_the_stream() -> None:
    failure = Failure("internal", "broken")
    with Client(transport=ReplayTransport([[START], [failure]])) as client:
        assert list(client.stream(REQUEST)) == [START, failure]


def test_silence_against_the_idle_timeout() -> None:
    script: list[Step] = [[START], 9.0, [Ping()], 9.0, TEXT[1:]]
    with Client(transport=ReplayTransport(script), idle_timeout=10) as client:
        assert client.complete(REQUEST).content == "Hello"
    transport = ReplayTransport(script)
    with Client(transport=transport, idle_timeout=8) as client, pytest.raises(IdleTimeoutError) as caught:
        client.complete(REQUEST)
    assert caught.value.seconds == 8
    assert transport.cancelled == 1


def test_a_request_without_stream_waits_for_its_only_response() -> None:
    request = REQUEST | {"stream": False}
    with Client(transport=ReplayTransport([60.0, TEXT[1:]]), idle_timeout=1) as client:
        assert list(client.stream(request)) == TEXT[1:]
        with pytest.raises(IdleTimeoutError):
            list(client.stream(REQUEST))
    with (
        Client(transport=ReplayTransport([60.0, TEXT]), response_timeout=1) as client,
        pytest.raises(IdleTimeoutError),
    ):
        list(client.stream(request))


def test_complete_always_streams_inside() -> None:
    transport = ReplayTransport([TEXT])
    with Client(transport=transport) as client:
        client.complete(REQUEST | {"stream": False})
    assert transport.requests == [("chat", REQUEST | {"stream": True})]


def test_errors_of_a_transport_pass_through() -> None:
    with Client(transport=ReplayTransport([[START], ConnectError("gone")])) as client, pytest.raises(ConnectError):
        client.complete(REQUEST)


@pytest.mark.parametrize(
    "script",
    [
        [],
        [[START]],
        [Response((), final=True)],
        [Response(("nonsense",))],
        [[Finish("stop"), TextDelta("late")]],
    ],
)
def test_broken_streams(script: list[Any]) -> None:
    with Client(transport=ReplayTransport(script)) as client, pytest.raises(ProtocolError):
        client.complete(REQUEST)


def test_waiting_for_final_is_bounded() -> None:
    def script(model: str, request: dict[str, Any]) -> Iterator[Sequence[Event]]:
        yield TEXT
        while True:
            time.sleep(0.05)
            yield []

    begin = time.monotonic()
    with Client(transport=InProcessTransport(script)) as client:
        assert client.complete(REQUEST).content == "Hello"
    assert time.monotonic() - begin < 2


def test_a_finish_with_final_waits_for_nothing() -> None:
    transport = ReplayTransport([response_of(TEXT, final=True), 1.0])
    with Client(transport=transport) as client:
        client.complete(REQUEST)
    assert transport.cancelled == 1  # the silence after FINAL was not read


@pytest.mark.parametrize("value", [float("nan"), object(), "\udfff"])
def test_a_request_that_json_cannot_say_is_refused_here(value: object) -> None:
    with Client(transport=ReplayTransport([])) as client, pytest.raises(RequestRefusedError) as caught:
        client.stream(REQUEST | {"user": value})
    assert caught.value.code == "invalid_json"


def test_asyncio_over_any_transport() -> None:
    handler = Handler(TEXT)

    async def run() -> None:
        async with AsyncClient(transport=ThreadedTransport(InProcessTransport(handler))) as client:
            assert (await client.complete(REQUEST)).content == "Hello"
            async with client.stream(REQUEST) as events:
                async for _ in events:
                    break
            assert handler.running == 0
            stream = client.stream(REQUEST)
            assert [event async for event in stream] == TEXT
            with pytest.raises(RuntimeError, match="once"):
                await anext(aiter(stream))
        with pytest.raises(RuntimeError, match="closed"):
            client.stream(REQUEST)

    asyncio.run(run())


def test_replies_of_one_script_are_independent() -> None:
    with Client(transport=ReplayTransport(each_alone(TEXT))) as client:
        first, second = iter(client.stream(REQUEST)), iter(client.stream(REQUEST))
        assert [next(first), next(second), *first, *second] == [START, START, *TEXT[1:], *TEXT[1:]]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost:8001", Address("grpc", "localhost", 8001)),
        ("host", Address("grpc", "host", 8001)),
        ("grpc://10.0.0.1:9", Address("grpc", "10.0.0.1", 9)),
        ("http://host", Address("http", "host", 8000)),
        ("http://[::1]:80/", Address("http", "::1", 80)),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    "url", ["", "https://host:1", "host:port", "host:99999", "http://host:1/v2", "grpc://u@host:1", "http://host:1?x=1"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"not HOST:PORT|not supported|[Pp]ort"):
        parse_url(url)


def test_the_netloc_of_ipv6() -> None:
    assert parse_url("grpc://[::1]:5").netloc == "[::1]:5"
