"""The transport interface: open one request, receive its responses one by one, close it.

A transport carries text; what the events mean is not its business. It raises only
:class:`~heptagram_client.errors.HeptagramClientError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Response:
    """One response of the server: its ``events`` as JSON texts (none is allowed), and whether it is the last one."""

    events: tuple[str | bytes, ...] = ()
    final: bool = False


class Reply(Protocol):
    """The responses of one request."""

    def receive(self, timeout: float | None) -> Response | None:
        """Wait for the next response; ``None`` when the server has ended the stream or ``close`` was called.

        Args:
            timeout: seconds without any response after which IdleTimeoutError is raised; ``None`` waits for ever.
        """

    def close(self) -> None:
        """End the request, cancelling it where it still runs. Idempotent; from another thread it wakes ``receive``."""


class Transport(Protocol):
    """A way to one server. One transport serves many requests at once."""

    def open(self, model: str, body: str) -> Reply:
        """Send ``body``, the JSON text of a request, to ``model``."""

    def close(self) -> None: ...


class AsyncReply(Protocol):
    """As :class:`Reply`, for asyncio."""

    async def receive(self, timeout: float | None) -> Response | None: ...

    async def close(self) -> None: ...


class AsyncTransport(Protocol):
    """As :class:`Transport`, for asyncio."""

    async def open(self, model: str, body: str) -> AsyncReply: ...

    async def close(self) -> None: ...
