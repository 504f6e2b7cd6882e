"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self
from weakref import WeakSet

from heptagram_client.choices import fold_choices
from heptagram_client.errors import HeptagramClientError
from heptagram_client.fold import ChatMessage, fold
from heptagram_client.reader import FINAL_GRACE_S, EventReader, Options, request_body
from heptagram_client.transports.address import DEFAULT_URL, transport_for
from heptagram_client.transports.base import Reply, Transport
from heptagram_wire.events import Event
from heptagram_wire.tensors import CHAT


class Client:
    """A client of one server; safe to share between threads, one stream of its own per request.

    Args:
        url: ``HOST:PORT`` or ``grpc://HOST:PORT`` of Triton's gRPC front, or ``http://HOST:PORT`` of its HTTP front.
        model: the Triton model, an ensemble with input ``request`` and output ``events``.
        idle_timeout: seconds without any response after which a stream raises IdleTimeoutError.
        response_timeout: the same for requests with ``stream`` false.
        transport: another way to a server; ``url`` is ignored then.

    Raises:
        ValueError: the URL is none of the forms above.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        model: str = CHAT,
        idle_timeout: float | None = 30.0,
        response_timeout: float | None = 600.0,
        transport: Transport | None = None,
    ) -> None:
        self._options = Options(model, idle_timeout, response_timeout)
        self._transport = transport_for(url) if transport is None else transport
        self._streams: WeakSet[EventStream] = WeakSet()
        self._closed = False

    def stream(self, request: Mapping[str, object]) -> EventStream:
        """The events of one request. Nothing is sent before the stream is entered or iterated."""
        if self._closed:
            raise RuntimeError("the client is closed")
        stream = EventStream(self._transport, self._options, request)
        self._streams.add(stream)
        return stream

    def complete(self, request: Mapping[str, object]) -> ChatMessage:
        """Send a request for one answer, wait for its end, and fold its events; it streams inside, so that a cancel is
        seen.

        Raises:
            HeptagramClientError: see :mod:`heptagram_client.errors`.
        """
        with self.stream({**request, "stream": True}) as events:
            return fold(events)

    def complete_choices(self, request: Mapping[str, object]) -> tuple[ChatMessage, ...]:
        """As :meth:`complete` for all ``n`` answers, in order; see :func:`heptagram_client.fold_choices`."""
        with self.stream({**request, "stream": True}) as events:
            return fold_choices(events)

    def close(self) -> None:
        """Cancel what still runs and close the connection."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class EventStream:
    """The events of one request: a context manager and an iterable, read once.

    Leaving the ``with`` block, breaking out of the loop, or ``close`` (also from another thread) cancels the request
    where it still runs. A server's ``failure`` is an event here; :func:`heptagram_client.fold` raises it.
    """

    def __init__(self, transport: Transport, options: Options, request: Mapping[str, object]) -> None:
        self._transport = transport
        self._model = options.model
        self._body = request_body(request)
        self._timeout = options.timeout_for(request)
        self._reader = EventReader()
        self._reply: Reply | None = None
        self._closed = False

    def __iter__(self) -> Iterator[Event]:
        reply = self._open()
        try:
            while not self._reader.finished and not self._closed:
                response = reply.receive(self._timeout)
                if self._closed:
                    return
                yield from self._reader.read(response)
        finally:
            self.close()

    def close(self) -> None:
        reply, self._reply = self._reply, None
        self._closed = True
        if reply is not None:
            try:
                self._await_final(reply)
            finally:
                reply.close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open(self) -> Reply:
        if self._closed:
            raise RuntimeError("a stream is read once; ask the client for a new one")
        if self._reply is None:
            self._reply = self._transport.open(self._model, self._body)
        return self._reply

    def _await_final(self, reply: Reply) -> None:
        deadline = time.monotonic() + FINAL_GRACE_S
        try:
            while self._reader.finished and not self._reader.ended and (left := deadline - time.monotonic()) > 0:
                self._reader.read(reply.receive(left))
        except HeptagramClientError:
            pass  # the message is complete; what follows it cannot matter any more
