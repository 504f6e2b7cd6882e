"""Who gets in: so many requests at once, and none while the server drains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from heptagram_gateway.errors import ApiError, draining


class GateState(Enum):
    OPEN = "open"
    DRAINING = "draining"


class Gate:
    """Counts the requests inside one event loop; ``limit`` of them may run at once."""

    def __init__(self, limit: int) -> None:
        self.state = GateState.OPEN
        self.running = 0
        self._limit = limit
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def admit(self, places: int = 1) -> Iterator[None]:
        """Hold places while the block runs.

        Raises:
            ApiError: 503 the server drains, 429 all places are taken.
        """
        if self.state is GateState.DRAINING:
            raise draining()
        if self.running + places > self._limit:
            raise ApiError(
                429,
                f"{self._limit} requests may run at once; try again soon",
                "overloaded",
                headers={"retry-after": "1"},
            )
        self.running += places
        self._idle.clear()
        try:
            yield
        finally:
            self.running -= places
            if not self.running:
                self._idle.set()

    def drain(self) -> None:
        """Admit nobody from now on."""
        self.state = GateState.DRAINING

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing runs; whether that came within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
