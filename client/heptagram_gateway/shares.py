"""What Triton last said of the shares of versions. Nobody waits long for it, and nobody fails by it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from heptagram_gateway.errors import ApiError

_KEPT_S: Final = 1.0
_PATIENCE_S: Final = 1.0
Shares = Mapping[str, int]


class KnownShares:
    """Asks for each ensemble once in ``kept_s`` at most. ``ask`` raises ApiError where there is no answer."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[Shares]],
        *,
        kept_s: float = _KEPT_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._ask = ask
        self._kept_s = kept_s
        self._patience_s = patience_s
        self._known: dict[str, tuple[float, Shares]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def of(self, ensemble: str) -> Shares:
        """Percents by version; the last ones that were told, where Triton does not answer soon."""
        at, _ = self._known.get(ensemble, (-math.inf, {}))
        if time.monotonic() - at > self._kept_s:
            task = self._asking.get(ensemble)
            if task is None:
                task = self._asking[ensemble] = asyncio.create_task(self._renew(ensemble))
            await asyncio.wait((task,), timeout=self._patience_s)
        return self._known.get(ensemble, (0.0, {}))[1]

    async def close(self) -> None:
        for task in [*self._asking.values()]:
            task.cancel()

    async def _renew(self, ensemble: str) -> None:
        shares = self._known.get(ensemble, (0.0, {}))[1]
        try:
            shares = await self._ask(ensemble)
        except ApiError:
            pass  # the request itself tells what is wrong with Triton
        finally:
            self._known[ensemble] = (time.monotonic(), shares)
            del self._asking[ensemble]
