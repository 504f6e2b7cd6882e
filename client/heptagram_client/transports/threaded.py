"""Any synchronous transport for asyncio. Each request has a thread of its own: waiting ones never starve others."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from heptagram_client.transports.base import AsyncReply, Reply, Response, Transport
from heptagram_client.transports.http import HttpTransport


class ThreadedTransport:
    """Wraps ``transport``; a task that is cancelled while it waits leaves its thread to the reply's ``close``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def open(self, model: str, body: str) -> AsyncReply:
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="heptagram-client")
        try:
            reply = await asyncio.get_running_loop().run_in_executor(thread, self._transport.open, model, body)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return _ThreadedReply(reply, thread)

    async def close(self) -> None:
        self._transport.close()


class _ThreadedReply:
    def __init__(self, reply: Reply, thread: ThreadPoolExecutor) -> None:
        self._reply = reply
        self._thread = thread

    async def receive(self, timeout: float | None) -> Response | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._reply.receive, timeout)

    async def close(self) -> None:
        self._reply.close()
        self._thread.shutdown(wait=False)


class AsyncHttpTransport(ThreadedTransport):
    """``netloc`` is ``HOST:PORT`` of Triton's HTTP front."""

    def __init__(self, netloc: str) -> None:
        super().__init__(HttpTransport(netloc))
