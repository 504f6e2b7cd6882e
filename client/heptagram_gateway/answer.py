"""How an answer leaves over HTTP: as server-sent events or whole, and never for a client that has left."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any, Final, Protocol, TypeVar

from starlette.types import Receive, Send

from heptagram_gateway.errors import ApiError, ClientGoneError, unexpected
from heptagram_gateway.generation import Generation
from heptagram_gateway.record import Record
from heptagram_wire.events import Event, Ping

_T = TypeVar("_T")
_In = TypeVar("_In", contravariant=True)

_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies must not collect the events
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_COMMENT: Final = b": keep-alive\n\n"
# No line ends to SSE, but to the clients that split lines as Python does.
_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class Encoder(Protocol[_In]):
    """From events to the messages of one API's stream. No I/O; a message is one whole server-sent event."""

    def begin(self) -> Iterable[bytes]:
        """What comes before the first event."""

    def feed(self, event: _In, /) -> Iterable[bytes]:
        """The messages of one event, the last one being the end; none for a heartbeat."""

    def fail(self, error: ApiError) -> Iterable[bytes]:
        """The messages that tell a failure; nothing is fed afterwards."""

    def end(self) -> Iterable[bytes]:
        """What closes the stream, after a failure too."""


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event; ``data`` is written as JSON, or as it is where it is text."""
    text = data if isinstance(data, str) else _ENCODER.encode(data)
    if not text.isascii():
        text = text.translate(_LINE_ENDS)
    return f"event: {event}\ndata: {text}\n\n".encode() if event else f"data: {text}\n\n".encode()


async def send_json(send: Send, status: int, data: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = _ENCODER.encode(data).encode()
    await send_body(send, status, body, "application/json", headers)


async def send_body(
    send: Send, status: int, body: bytes, content_type: str, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    length = str(len(body)).encode()
    head = [(b"content-type", content_type.encode()), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def send_stream(
    send: Send, events: AsyncIterator[_T], encoder: Encoder[_T], *, keep_alive: float, record: Record
) -> None:
    """Send headers, then the events through ``encoder``. A failure becomes part of the stream and is not raised.

    The response is left open: :func:`send_end` is to be called when the generation has been left in order.

    Args:
        send: of ASGI.
        events: those of a :class:`heptagram_gateway.generation.Generation`, through :func:`seen`.
        encoder: a new one.
        keep_alive: seconds after which a silent stream gets a comment, in time with the server's heartbeats.
        record: told of a failure.
    """
    await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})
    writer = _Writer(send, keep_alive)
    await writer.write(encoder.begin())
    try:
        async for event in events:
            await writer.write(encoder.feed(event))
    except ApiError as error:
        await _tell(writer, encoder, error, record)
    except Exception as error:
        await _tell(writer, encoder, unexpected(error), record)
    await writer.write(encoder.end())


async def send_end(send: Send) -> None:
    """End the response of :func:`send_stream`."""
    await send({"type": "http.response.body", "body": b""})


async def seen(generation: Generation, record: Record) -> AsyncIterator[Event]:
    """The events of a generation, taken note of on their way."""
    record.see(generation.start)
    async for event in generation:
        record.see(event)
        yield event


async def collect(generation: Generation, record: Record) -> list[Event]:
    """All events of a generation but its heartbeats, for those who answer at once."""
    return [event async for event in seen(generation, record) if not isinstance(event, Ping)]


async def until_gone(receive: Receive, work: Awaitable[_T]) -> _T:
    """Do ``work``, but cancel it as soon as the client has left. The body must have been read.

    Raises:
        ClientGoneError: it has.
    """
    running = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientGoneError
        return running.result()
    finally:
        await _stop(watching)
        await _stop(running)


class _Writer:
    """Sends messages; where there are none for long, a comment."""

    def __init__(self, send: Send, keep_alive: float) -> None:
        self._send = send
        self._keep_alive = keep_alive
        self._last = time.monotonic()

    async def write(self, messages: Iterable[bytes]) -> None:
        data = b"".join(messages)
        now = time.monotonic()
        if not data and now - self._last >= self._keep_alive:
            data = _COMMENT
        if data:
            self._last = now
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def _tell(writer: _Writer, encoder: Encoder[Any], error: ApiError, record: Record) -> None:
    record.failed(error)
    await writer.write(encoder.fail(error))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Future[Any]) -> None:
    """End a task and wait for its end; what it raises then is nobody's any more."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
