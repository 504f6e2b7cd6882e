"""The transport interface: open one request, receive its responses one by one, close it.

A transport carries text; what the events mean is not its business. It raises only
:class:`~heptagram_client.errors.HeptagramClientError`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from heptagram_wire.events import TokenLogprob


@dataclass(frozen=True, slots=True)
class Response:
    """One response of the server: its ``events`` as JSON texts (none is allowed), and whether it is the last one."""

    events: tuple[str | bytes, ...] = ()
    final: bool = False


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What one response tells of one answer: more of its text, and with the last of it why it ended.

    ``logprobs``: one entry a token of this response, none where they were not asked for.
    """

    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextResponse:
    """One response of a completion: a piece of each of its ``n`` answers, or none where it only says that it is over.

    ``prompt_tokens`` is ``None`` where it has none.
    """

    pieces: tuple[TextPiece, ...] = ()
    prompt_tokens: int | None = None
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
    """A way to one server. One transport serves many requests at once.

    ``model`` is the name of a Triton model, or ``NAME@VERSION``; without a version Triton takes the newest.
    """

    def open(self, model: str, body: str) -> Reply:
        """Send ``body``, the JSON text of a request, to ``model``."""

    def close(self) -> None: ...


class AsyncReply(Protocol):
    """As :class:`Reply`, for asyncio."""

    async def receive(self, timeout: float | None) -> Response | None: ...

    async def close(self) -> None: ...


class AsyncTextReply(Protocol):
    """The responses of one completion."""

    async def receive(self, timeout: float | None) -> TextResponse | None: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class AsyncTextTransport(Protocol):
    """A way to the ensemble ``completions``."""

    async def open_completion(self, model: str, inputs: Mapping[str, Any]) -> AsyncTextReply:
        """Send input tensors by name; their types are those of :mod:`heptagram_wire.tensors`."""

    async def close(self) -> None: ...


class AsyncTransport(Protocol):
    """As :class:`Transport`, for asyncio."""

    async def open(self, model: str, body: str) -> AsyncReply: ...

    async def close(self) -> None: ...


def split_model(model: str) -> tuple[str, str]:
    """``NAME@VERSION`` as name and version; the version is empty where none is given."""
    name, _, version = model.partition("@")
    return name, version
