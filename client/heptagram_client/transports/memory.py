"""Transports without a server: one calls a function of this process, one replays a script.

Both are for tests of whatever stands on the client, and for running an engine and its client in one process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from heptagram_client.errors import HeptagramClientError, IdleTimeoutError
from heptagram_client.transports.base import Reply, Response
from heptagram_wire.codec import encode_event
from heptagram_wire.events import Event

Handler = Callable[[str, dict[str, Any]], Iterable[Sequence[Event]]]
Step = Sequence[Event] | Response | float | HeptagramClientError


def response_of(events: Sequence[Event], *, final: bool = False) -> Response:
    return Response(tuple(encode_event(event) for event in events), final)


class InProcessTransport:
    """Calls ``handler(model, request)``; each sequence of events that it yields is one response.

    The handler runs on the reader's thread, so no idle timeout applies to it. A cancel closes its generator: a
    ``finally`` in it is the place to clean up. It may raise any HeptagramClientError.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def open(self, model: str, body: str) -> Reply:
        return _InProcessReply(iter(self._handler(model, json.loads(body))))

    def close(self) -> None:
        """Nothing is shared between requests."""


class _InProcessReply:
    def __init__(self, responses: Iterator[Sequence[Event]]) -> None:
        self._responses = responses
        self._running = threading.Lock()
        self._closed = False

    def receive(self, timeout: float | None) -> Response | None:  # noqa: ARG002 (see InProcessTransport)
        with self._running:
            events = None if self._closed else next(self._responses, None)
            if self._closed:  # `close` came while the handler ran
                self._end_handler()
        return None if events is None or self._closed else response_of(events)

    def close(self) -> None:
        self._closed = True
        if self._running.acquire(blocking=False):
            try:
                self._end_handler()
            finally:
                self._running.release()

    def _end_handler(self) -> None:
        close = getattr(self._responses, "close", None)
        if close is not None:
            close()


class ReplayTransport:
    """Replays the same script for each request.

    A step is a response (as events, or raw), a silence in seconds (not slept: it only counts against the idle timeout),
    or an error to raise. ``requests`` records what was asked, ``cancelled`` how many replies were closed before their
    script was over.
    """

    def __init__(self, script: Iterable[Step]) -> None:
        self._script = tuple(script)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = 0
        self.closed = False

    def open(self, model: str, body: str) -> Reply:
        self.requests.append((model, json.loads(body)))
        return _ReplayReply(self, self._script)

    def close(self) -> None:
        self.closed = True


class _ReplayReply:
    def __init__(self, owner: ReplayTransport, script: tuple[Step, ...]) -> None:
        self._owner = owner
        self._left = list(script)
        self._closed = False

    def receive(self, timeout: float | None) -> Response | None:
        while self._left and not self._closed:
            step = self._left.pop(0)
            if isinstance(step, HeptagramClientError):
                raise step
            if isinstance(step, Response):
                return step
            if not isinstance(step, int | float):
                return response_of(step)
            if timeout is not None and step > timeout:
                raise IdleTimeoutError(timeout)
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._owner.cancelled += bool(self._left)
