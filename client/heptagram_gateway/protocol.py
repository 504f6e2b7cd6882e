"""Uvicorn's HTTP/1.1 protocol with what it lacks: bounds of time and size, and errors in OpenAI's shape.

Headers must be complete within a time, a reader must take something within a time, a body must not come in crumbs, and
there are only so many connections. What fails is answered where it still can be, and the connection ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import dataclass
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from heptagram_gateway.errors import ApiError, openai_error

_FREE_PIECES: Final = 4_096
_LEAST_BYTES: Final = 16  # a piece, on average, once there are more pieces


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Times in seconds, ``headers`` in bytes."""

    headers: int
    header_timeout: float
    write_timeout: float
    connections: int


class _Connection(h11.Connection):
    """Refuses a body of very many tiny chunks: each one costs more than a packet."""

    def __init__(self, header_bytes: int) -> None:
        super().__init__(h11.SERVER, header_bytes)
        self._pieces = 0
        self._bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > _FREE_PIECES and self._bytes < _LEAST_BYTES * self._pieces:
                raise h11.RemoteProtocolError("the body comes in too many tiny chunks")
        return event


def bounded_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """The protocol class for uvicorn's ``http`` setting."""

    class Bounded(_BoundedProtocol):
        bounds = limits

    return Bounded


class _BoundedProtocol(H11Protocol):
    bounds: ConnectionLimits

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.conn = _Connection(self.bounds.headers)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _send_at_once(transport)
        if len(self.connections) > self.bounds.connections:
            self._refuse(ApiError(503, "too many connections; try again soon", "overloaded"))
        else:
            self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._header_timer)
        self._stop(self._write_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._bound_end()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._bound_end()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Uvicorn calls it while it handles what h11 raised."""
        fault = sys.exc_info()[1]
        status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
        if status == 431:
            self._refuse(ApiError(431, f"the headers are larger than {self.bounds.headers} bytes", "headers_too_large"))
        else:
            self._refuse(ApiError(400, "this is not valid HTTP/1.1", "invalid_http"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        self._stop(self._write_timer)
        super().resume_writing()

    def _bound_end(self) -> None:
        """A reader that takes nothing must not hold the last bytes of a closing connection for ever."""
        if self.transport.is_closing():
            self._abort_later()

    def _abort_later(self) -> None:
        self._stop(self._write_timer)
        self._write_timer = self.loop.call_later(self.bounds.write_timeout, self.transport.abort)

    def _watch_headers(self) -> None:
        """The timer runs while a request's headers are awaited, except between two requests: that is keep-alive's."""
        waiting = self.conn.their_state is h11.IDLE
        if not waiting:
            self._stop(self._header_timer)
            self._header_timer = None
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.bounds.header_timeout, self._headers_stall)

    def _headers_stall(self) -> None:
        if not self.transport.is_closing():
            self._refuse(ApiError(408, f"no request within {self.bounds.header_timeout:g} s", "timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, where no answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(openai_error(error)).encode()
            head = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            response = h11.Response(status_code=error.status, headers=head)
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._bound_end()

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _send_at_once(transport: asyncio.Transport) -> None:
    """subtle: asyncio does it only for sockets that say they are TCP's; else a chunk may wait 40 ms for an ACK."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
