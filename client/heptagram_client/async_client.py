"""The asyncio client; the same promises as the synchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self
from weakref import WeakSet

from heptagram_client.choices import fold_choices
from heptagram_client.endings import Endings
from heptagram_client.errors import HeptagramClientError
from heptagram_client.fold import ChatMessage, Folder
from heptagram_client.reader import FINAL_GRACE_S, EventReader, Options, request_body
from heptagram_client.transports.address import DEFAULT_URL, async_transport_for
from heptagram_client.transports.base import AsyncReply, AsyncTransport
from heptagram_wire.events import Event
from heptagram_wire.tensors import CHAT


class AsyncClient:
    """A client of one server inside one event loop; arguments and errors as for :class:`heptagram_client.Client`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        model: str = CHAT,
        idle_timeout: float | None = 30.0,
        response_timeout: float | None = 600.0,
        transport: AsyncTransport | None = None,
    ) -> None:
        self._options = Options(model, idle_timeout, response_timeout)
        self._transport = async_transport_for(url) if transport is None else transport
        self._streams: WeakSet[AsyncEventStream] = WeakSet()
        self._endings = Endings()
        self._closed = False

    def stream(self, request: Mapping[str, object], *, model: str | None = None) -> AsyncEventStream:
        """The events of one request, of another model than the client's where ``model`` is given.

        Nothing is sent before the stream is entered or iterated.
        """
        if self._closed:
            raise RuntimeError("the client is closed")
        options = self._options if model is None else replace(self._options, model=model)
        stream = AsyncEventStream(self._transport, options, request, self._endings)
        self._streams.add(stream)
        return stream

    async def complete(self, request: Mapping[str, object]) -> ChatMessage:
        """Send a request for one answer, wait for its end, and fold its events. Cancelling the task cancels it.

        Raises:
            HeptagramClientError: see :mod:`heptagram_client.errors`.
        """
        folder = Folder()
        async with self.stream({**request, "stream": True}) as events:
            async for event in events:
                folder.feed(event)
        return folder.result()

    async def complete_choices(self, request: Mapping[str, object]) -> tuple[ChatMessage, ...]:
        """As :meth:`complete` for all ``n`` answers, in order; see :func:`heptagram_client.fold_choices`."""
        async with self.stream({**request, "stream": True}) as events:
            return fold_choices([event async for event in events])

    async def close(self) -> None:
        """Cancel what still runs and close the connection."""
        self._closed = True
        for stream in list(self._streams):
            await stream.close()
        await self._endings.wait()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()


class AsyncEventStream:
    """The events of one request, read once. Use it in ``async with``: then leaving the loop cancels at once."""

    def __init__(
        self, transport: AsyncTransport, options: Options, request: Mapping[str, object], endings: Endings
    ) -> None:
        self._transport = transport
        self._endings = endings
        self._model = options.model
        self._body = request_body(request)
        self._timeout = options.timeout_for(request)
        self._reader = EventReader()
        self._reply: AsyncReply | None = None
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        reply = await self._open()
        try:
            while not self._reader.finished and not self._closed:
                response = await reply.receive(self._timeout)
                if self._closed:
                    return
                for event in self._reader.read(response):
                    yield event
        finally:
            await self.close()

    async def close(self) -> None:
        reply, self._reply = self._reply, None
        self._closed = True
        if reply is not None:
            await self._endings.run(self._end(reply))

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self) -> AsyncReply:
        if self._closed:
            raise RuntimeError("a stream is read once; ask the client for a new one")
        if self._reply is None:
            self._reply = await self._transport.open(self._model, self._body)
        return self._reply

    async def _end(self, reply: AsyncReply) -> None:
        try:
            await self._await_final(reply)
        finally:
            await reply.close()

    async def _await_final(self, reply: AsyncReply) -> None:
        try:
            async with asyncio.timeout(FINAL_GRACE_S):
                while self._reader.finished and not self._reader.ended:
                    self._reader.read(await reply.receive(FINAL_GRACE_S))
        except (HeptagramClientError, TimeoutError):
            pass  # the message is complete; what follows it cannot matter any more
