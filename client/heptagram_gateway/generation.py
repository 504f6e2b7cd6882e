"""One request to the engine, from a chat request in Python objects to its events. Nothing of HTTP or OpenAI's shape.

Whatever fails raises an ApiError: on entering where it failed before ``start``, from the iteration afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar, cast

from heptagram_client import AsyncClient, AsyncEventStream, ConnectError, HeptagramClientError
from heptagram_gateway.errors import NOT_READY, ApiError, draining, from_client, from_failure
from heptagram_gateway.models import Target
from heptagram_wire.errors import CANCELLED, DEADLINE
from heptagram_wire.events import ChoiceEnd, Event, Failure, Finish, Ping, Start, UnknownEvent

_T = TypeVar("_T")
_PAUSES_S: Final = (0.1, 0.4)  # before another attempt, where nothing could be sent
# Ends that no client has a finish reason for; they are told as errors.
_CUT: Final[Mapping[str, tuple[int, str]]] = {
    DEADLINE: (504, "the deadline of the request has passed"),
    CANCELLED: (503, "the request was cancelled on the server"),
}


class Generation:
    """A running request: ``start``, then its events by ``async for`` up to and with the only :class:`Finish`.

    Each finish reason is ``stop``, ``length`` or ``tool_calls``; one of several answers that is cut ends the whole.
    """

    def __init__(self, target: Target, start: Start, events: AsyncIterator[Event]) -> None:
        self.target = target
        self.start = start
        self._events = events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await _next(self._events)
            if isinstance(event, UnknownEvent):
                continue
            if isinstance(event, Finish | ChoiceEnd) and (error := cut(event.reason)):
                raise error
            yield event
            if isinstance(event, Finish):
                return


class Engine:
    """Runs requests on ``client``, which it closes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._closed = False

    @asynccontextmanager
    async def run(self, request: Mapping[str, object], target: Target) -> AsyncIterator[Generation]:
        """Send a chat request and wait until it is admitted. Leaving the block cancels what still runs.

        Args:
            request: the request of :mod:`heptagram_wire.requests`; ``model`` and ``stream`` are set here.
            target: from :class:`heptagram_gateway.models.Models`.

        Raises:
            ApiError: it was refused, or failed before its ``start``.
        """
        body = {key: value for key, value in request.items() if key != "model"} | {"stream": True}
        stream, events, start = await first_ready(target, lambda way: self._open(body, way))
        try:
            yield Generation(target, start, events)
        finally:
            await _end(stream, events)

    async def close(self) -> None:
        """Cancel what runs; its readers get the error that the server drains."""
        self._closed = True
        await self._client.close()

    async def _open(
        self, body: Mapping[str, object], target: Target
    ) -> tuple[AsyncEventStream, AsyncIterator[Event], Start]:
        for pause in (*_PAUSES_S, None):
            if self._closed:
                raise draining()
            stream = self._client.stream(body, model=target.triton_name)
            events = aiter(stream)
            try:
                return stream, events, await _first(events)
            except BaseException as error:
                await _end(stream, events)
                if not isinstance(error, ConnectError) or pause is None:
                    raise (from_client(error) if isinstance(error, HeptagramClientError) else error) from None
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


async def first_ready(target: Target, run: Callable[[Target], Awaitable[_T]]) -> _T:
    """Run on ``target``, or instead of it, where that is not ready."""
    *others, last = target.ways
    for way in others:
        try:
            return await run(way)
        except ApiError as error:
            if error.code != NOT_READY:
                raise
    return await run(last)


def cut(reason: str) -> ApiError | None:
    """The error that an end by ``deadline`` or ``cancelled`` is told as; ``None`` for other reasons."""
    if reason not in _CUT:
        return None
    status, message = _CUT[reason]
    return ApiError(status, message, reason)


async def _first(events: AsyncIterator[Event]) -> Start:
    """Wait for ``start``. Raises what the client raises, and ApiError for a run that failed before."""
    while True:
        event = await anext(events, None)
        match event:
            case None:
                raise draining()
            case Start():
                return event
            case Failure():
                raise from_failure(event)
            case Ping() | UnknownEvent():
                continue
            case _:
                raise ApiError(502, "the model server answered before it started", "bad_gateway")


async def _next(events: AsyncIterator[Event]) -> Event:
    try:
        event = await anext(events, None)
    except HeptagramClientError as error:
        raise from_client(error) from error
    if event is None:  # the client was closed: nothing else ends events without a terminal one
        raise draining()
    if isinstance(event, Failure):
        raise from_failure(event)
    return event


async def _end(stream: AsyncEventStream, events: AsyncIterator[Event]) -> None:
    await stream.close()
    await cast(AsyncGenerator[Event, None], events).aclose()
