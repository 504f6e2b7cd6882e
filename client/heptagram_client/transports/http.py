"""Triton's HTTP front: POST ``/v2/models/<model>/generate_stream``, answered with server-sent events.

An error before the first response is a status and ``{"error": ...}`` (some versions write ``data: `` in front), a later
one is a message of the stream. Closing the connection cancels.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Lock
from typing import Any
from urllib.parse import quote

from heptagram_client.errors import ConnectError, IdleTimeoutError, ProtocolError, error_from_text
from heptagram_client.transports.base import Reply, Response, split_model
from heptagram_client.transports.sse import SseDecoder
from heptagram_wire import tensors

_CONNECT_TIMEOUT = 10.0


class HttpTransport:
    """``netloc`` is ``HOST:PORT`` of Triton's HTTP front."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc

    def open(self, model: str, body: str) -> Reply:
        return _HttpReply(self._netloc, model, body)

    def close(self) -> None:
        """Nothing is shared between requests."""


class _HttpReply:
    def __init__(self, netloc: str, model: str, body: str) -> None:
        self._closed = False
        self._reading = Lock()
        self._decoder = SseDecoder()
        self._response: HTTPResponse | None = None
        self._connection = HTTPConnection(netloc, timeout=_CONNECT_TIMEOUT)
        try:
            self._connection.request(
                "POST",
                f"{_path(model)}/generate_stream",
                json.dumps({tensors.REQUEST: body}),
                {"Content-Type": "application/json"},
            )
        except OSError as error:
            self._connection.close()
            raise ConnectError(f"no connection to http://{netloc}: {error}") from error
        # Kept, because http.client lets go of it once the response is read.
        self._socket: socket.socket = self._connection.sock

    def receive(self, timeout: float | None) -> Response | None:
        if self._closed:
            return None
        try:
            with self._reading:
                self._socket.settimeout(timeout)
                return self._next()
        except TimeoutError:
            raise IdleTimeoutError(timeout or 0.0) from None
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a closed socket
            if self._closed:
                return None
            raise ConnectError(f"the connection to the server was lost: {error}") from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):  # the server may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a reader in another thread
        with self._reading:  # http.client breaks when it is closed under a reader
            if self._response is not None:
                self._response.close()
            self._connection.close()
            self._socket.close()

    def _next(self) -> Response | None:
        if self._response is None:
            self._response = self._connection.getresponse()
            if self._response.status != 200:
                raise error_from_text(_error_text(self._response.read()), f"HTTP {self._response.status}")
        while line := self._response.readline():
            response = _read_message(self._decoder.feed(line.decode()))
            if response is not None:
                return response
        return _read_message(self._decoder.flush())


def _path(model: str) -> str:
    name, version = split_model(model)
    path = f"/v2/models/{quote(name, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _read_message(data: str | None) -> Response | None:
    """A message without ``events`` is none of ours (an empty final one, a response of another output)."""
    if data is None:
        return None
    message = _parse(data)
    if isinstance(message.get("error"), str):
        raise error_from_text(message["error"])
    events = message.get(tensors.EVENTS)
    if events is None:
        return None
    elements = [events] if isinstance(events, str) else events
    if not isinstance(elements, list) or not all(isinstance(element, str) for element in elements):
        raise ProtocolError(f"output `events` is neither a string nor a list of strings: {data:.200}")
    return Response(tuple(elements))


def _parse(data: str) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise ProtocolError(f"a message of the stream is not a JSON object: {data:.200}")
    return message


def _error_text(body: bytes) -> str:
    text = body.decode(errors="replace").strip().removeprefix("data:").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text or "no message"
