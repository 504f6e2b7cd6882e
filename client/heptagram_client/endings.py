"""Ends of asyncio streams, which the cancel of a waiting task must not cut short.

subtle: a task is often cancelled just behind the last event of its stream. Were the stream cancelled then, tritonserver
(2.51) would hold the model for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Endings:
    """Holds the ends of one client's streams until they are over."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, end: Coroutine[Any, Any, None]) -> None:
        """Wait for ``end``; when the waiting task is cancelled it goes on."""
        task = asyncio.create_task(end)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait for all that go on."""
        if self._tasks:
            await asyncio.wait(self._tasks)
