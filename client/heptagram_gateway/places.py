"""Errors name the fields that the caller wrote: the engine is asked in chat's words, another API has its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from heptagram_gateway.errors import ApiError

_T = TypeVar("_T")


class Places:
    """For one request: which path of its body a path of the chat request came from, such as ``max_tokens`` from
    ``max_output_tokens``. What is below a known path moves with it."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}

    def came_from(self, chat: str, own: str) -> None:
        """``chat`` of the chat request is what the caller wrote at ``own``."""
        self._own[chat] = own

    def own(self, chat: str) -> str:
        """The caller's path; the same one where it is not known."""
        head = chat
        while head not in self._own:
            cut = max(head.rfind("."), head.rfind("["))
            if cut < 0:
                return chat
            head = head[:cut]
        return self._own[head] + chat[len(head) :]

    @contextmanager
    def told(self) -> Iterator[None]:
        """An ApiError that leaves the block names the caller's field."""
        try:
            yield
        except ApiError as error:
            param = None if error.param is None else self.own(error.param)
            raise ApiError(error.status, error.message, error.code, param, error.headers) from error

    async def each(self, events: AsyncIterator[_T]) -> AsyncIterator[_T]:
        """``events``; an ApiError of theirs names the caller's field."""
        with self.told():
            async for event in events:
                yield event
