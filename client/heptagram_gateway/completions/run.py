"""One completion on the ensemble: its responses as pieces of text, its end, its errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from heptagram_client.endings import Endings
from heptagram_client.errors import HeptagramClientError, ProtocolError
from heptagram_client.transports.base import AsyncTextReply, AsyncTextTransport, TextResponse
from heptagram_gateway.errors import draining, from_client
from heptagram_gateway.generation import cut, first_ready
from heptagram_gateway.models import Target
from heptagram_wire.events import TokenLogprob

# Triton's FINAL comes with the last response; waited for so long, so that an ordinary end is no cancel.
_FINAL_GRACE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one response for answer number ``choice``. ``reason`` comes with its last one: ``stop`` or ``length``."""

    text: str
    reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """What a prompt's running request gives: ``n`` answers, their pieces mixed."""

    n: int
    pieces: AsyncIterator[Piece]


class TextEngine:
    """Runs completions on ``transport``."""

    def __init__(self, transport: AsyncTextTransport, *, idle_timeout: float) -> None:
        self._transport = transport
        self._idle_timeout = idle_timeout
        self._running: set[AsyncTextReply] = set()
        self._endings = Endings()

    @asynccontextmanager
    async def run(self, inputs: Mapping[str, Any], target: Target) -> AsyncIterator[Answers]:
        """Send one prompt and wait for its first response. Leaving the block cancels what still runs.

        Raises:
            ApiError: it was refused, or failed before the first response; the iteration raises it of later failures.
        """
        reply, reader, first = await first_ready(target, lambda way: self._begin(inputs, way))
        try:
            yield Answers(len(first.pieces), reader.pieces(first))
        finally:
            await self._end(reply, reader)

    async def close(self) -> None:
        """Cancel what runs; its readers get the error that the server drains."""
        for reply in [*self._running]:
            await reply.close()
        await self._endings.wait()

    async def _begin(self, inputs: Mapping[str, Any], target: Target) -> tuple[AsyncTextReply, _Reader, TextResponse]:
        reply = await self._open(inputs, target)
        self._running.add(reply)
        reader = _Reader(reply, self._idle_timeout)
        try:
            return reply, reader, await reader.receive()
        except BaseException:
            await self._end(reply, reader)
            raise

    async def _end(self, reply: AsyncTextReply, reader: _Reader) -> None:
        self._running.discard(reply)
        await self._endings.run(reader.end())

    async def _open(self, inputs: Mapping[str, Any], target: Target) -> AsyncTextReply:
        try:
            return await self._transport.open_completion(target.triton_name, inputs)
        except HeptagramClientError as error:
            raise from_client(error) from error


class _Reader:
    """Reads one reply to its end."""

    def __init__(self, reply: AsyncTextReply, idle_timeout: float) -> None:
        self._reply = reply
        self._idle_timeout = idle_timeout
        self._finished = False  # the last text of each answer was read
        self._reasons: dict[int, str] = {}
        self._ended = False  # the server sends no more

    async def receive(self) -> TextResponse:
        """The next response; raises ApiError."""
        try:
            response = await self._reply.receive(self._idle_timeout)
        except HeptagramClientError as error:
            raise from_client(error) from error
        if response is None:  # the reply was closed: Triton ends no stream without FINAL
            raise draining()
        self._reasons |= {
            choice: piece.finish_reason for choice, piece in enumerate(response.pieces) if piece.finish_reason
        }
        self._finished = 0 < len(response.pieces) <= len(self._reasons)
        self._ended = response.final
        if self._ended and not self._finished:
            raise from_client(ProtocolError("the stream ended without a finish reason"))
        return response

    async def pieces(self, response: TextResponse) -> AsyncIterator[Piece]:
        while True:
            for choice, piece in enumerate(response.pieces):
                reason = piece.finish_reason
                if reason is not None and (error := cut(reason)):
                    raise error
                counts = response.prompt_tokens or 0, piece.completion_tokens
                yield Piece(piece.text, reason, *counts, piece.logprobs, choice)
            if self._finished:
                return
            response = await self.receive()

    async def end(self) -> None:
        """Close the reply; an answered one only when FINAL has come, so that an ordinary end is no cancel."""
        try:
            while self._finished and not self._ended:
                later = await self._reply.receive(_FINAL_GRACE_S)
                self._ended = later is None or later.final
        except HeptagramClientError:
            pass  # the text is complete; what follows it cannot matter any more
        finally:
            await self._reply.close()


async def merge(streams: list[AsyncIterator[Piece]]) -> AsyncIterator[tuple[int, Piece]]:
    """The pieces of all streams as they come, each with the place of its stream; the first error ends all."""
    waiting = {asyncio.ensure_future(_step(stream)): place for place, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                place = waiting.pop(task)
                piece = task.result()
                if piece is not None:
                    waiting[asyncio.ensure_future(_step(streams[place]))] = place
                    yield place, piece
    finally:
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)


async def _step(stream: AsyncIterator[Piece]) -> Piece | None:
    return await anext(stream, None)
