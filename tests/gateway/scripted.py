"""A server of scripts behind the client's transport interface: what the engine would send, without Triton."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from heptagram_client.errors import HeptagramClientError, IdleTimeoutError
from heptagram_client.transports.base import Response, TextPiece, TextResponse
from heptagram_client.transports.memory import response_of
from heptagram_gateway.errors import ApiError
from heptagram_wire.events import Event, TokenLogprob

Script = Callable[[dict[str, Any]], AsyncIterator[Sequence[Event]]]
TextScript = Callable[[dict[str, Any]], AsyncIterator[TextResponse]]
_T = TypeVar("_T")


def told(
    text: str = "",
    reason: str | None = None,
    prompt_tokens: int | None = None,
    tokens: int = 0,
    logprobs: tuple[TokenLogprob, ...] = (),
    *,
    final: bool = False,
) -> TextResponse:
    """One response of a completion with one answer."""
    return TextResponse((TextPiece(text, reason, tokens, logprobs),), prompt_tokens, final)


def play(*steps: Sequence[Event] | float | HeptagramClientError) -> Script:
    """The same answer to each request; a number is a silence in seconds, an error is raised."""

    async def script(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
        for step in steps:
            if isinstance(step, HeptagramClientError):
                raise step
            if isinstance(step, int | float):
                await asyncio.sleep(step)
            else:
                yield step

    return script


def endless(*first: Sequence[Event], repeat: Event, every: float = 0.01) -> Script:
    async def script(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
        for events in first:
            yield events
        while True:
            await asyncio.sleep(every)
            yield [repeat]

    return script


class ScriptedServer:
    """Both transports, and Triton's answers about models. ``live`` counts running replies, ``left`` cancelled ones."""

    def __init__(self, script: Script, texts: TextScript | None = None) -> None:
        self.live = 0
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.ready: Mapping[str, tuple[str, ...]] | None = None
        self.reset(script, texts)

    def reset(self, script: Script, texts: TextScript | None = None) -> None:
        self.script = script
        self.texts = texts
        self.ready = {"chat": ("1",), "completions": ("1",)}
        self.shared: dict[str, dict[str, int]] = {}
        self.requests.clear()
        self.left = 0

    async def open(self, model: str, body: str) -> _Reply[Response]:
        request = json.loads(body)
        self.requests.append((model, request))
        return _Reply(self, self._responses(request))

    async def open_completion(self, model: str, inputs: Mapping[str, Any]) -> _Reply[TextResponse]:
        assert self.texts is not None
        self.requests.append((model, dict(inputs)))
        return _Reply(self, self.texts(dict(inputs)))

    async def versions(self, ensemble: str) -> tuple[str, ...]:
        if self.ready is None:
            raise ApiError(503, "the model server cannot be reached; try again soon", "unavailable")
        return self.ready.get(ensemble, ())

    async def shares(self, ensemble: str) -> Mapping[str, int]:
        return self.shared.get(ensemble, {})

    async def close(self) -> None:
        """Nothing is kept."""

    async def _responses(self, request: dict[str, Any]) -> AsyncIterator[Response]:
        async for events in self.script(request):
            yield response_of(events)


class _Reply(Generic[_T]):
    def __init__(self, server: ScriptedServer, responses: AsyncIterator[_T]) -> None:
        self._server = server
        self._inbox: asyncio.Queue[_T | HeptagramClientError | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._pump(responses))
        self._closed = False
        server.live += 1

    async def receive(self, timeout: float | None) -> _T | None:
        try:
            async with asyncio.timeout(timeout):
                item = await self._inbox.get()
        except TimeoutError:
            raise IdleTimeoutError(timeout or 0) from None
        if isinstance(item, HeptagramClientError):
            raise item
        return item

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._server.live -= 1
        self._server.left += not self._task.done()
        self._task.cancel()
        self._inbox.put_nowait(None)

    async def _pump(self, responses: AsyncIterator[_T]) -> None:
        try:
            async for response in responses:
                await self._inbox.put(response)
            await self._inbox.put(None)
        except HeptagramClientError as error:
            await self._inbox.put(error)
