"""The requests of generate that are not over: one owner of tickets, engine ids and sinks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Abandonable(Protocol):
    def abandoned(self) -> bool:
        """Nobody can receive this request's output any more."""


@dataclass(slots=True)
class _Live:
    sink: Abandonable
    id: str | None = None
    cancelled: bool = False


class LiveRequests:
    """Opened with a ticket, bound to the engine's id once that is known, closed once.

    A ticket works once. A cancel that comes before the engine's id is known is kept until :meth:`bind`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._opened = 0
        self._closed = 0

    def __len__(self) -> int:
        return len(self._live)

    def open(self, ticket: str, sink: Abandonable) -> None:
        with self._lock:
            assert ticket not in self._live
            self._live[ticket] = _Live(sink)
            self._opened += 1

    def bind(self, ticket: str, id: str) -> bool:
        """Note the engine's id; True when the request was cancelled meanwhile and the engine must be told now."""
        with self._lock:
            live = self._live.get(ticket)
            if live is None:  # it was over before the engine's id came back
                return False
            live.id = id
            return live.cancelled

    def claim(self, ticket: str) -> str | None:
        """Use a ticket: the engine id to cancel. ``None`` when it is unknown, used, or not bound yet."""
        with self._lock:
            live = self._live.get(ticket)
            if live is None or live.cancelled:
                return None
            live.cancelled = True
            return live.id

    def close(self, ticket: str) -> None:
        """The request is over; idempotent."""
        with self._lock:
            if self._live.pop(ticket, None) is not None:
                self._closed += 1

    def abandoned(self) -> Sequence[str]:
        """Tickets of requests whose client has left and that are not cancelled yet."""
        with self._lock:
            candidates = [(ticket, live.sink) for ticket, live in self._live.items() if not live.cancelled]
        return [ticket for ticket, sink in candidates if sink.abandoned()]

    def check(self) -> None:
        """Assert that what was opened is either live or closed, and that no engine id is held twice."""
        with self._lock:
            assert self._opened == self._closed + len(self._live)
            ids = [live.id for live in self._live.values() if live.id is not None]
            assert len(ids) == len(set(ids))
