"""The server process: uvicorn around the application, and the ordered end.

At SIGTERM, and at a terminal's SIGINT and SIGHUP unless they were ignored when the process was started, in this order:

1. nobody new is admitted (503), ``/health/ready`` says so; the port still answers, so that a balancer can see it;
2. what runs may go on for ``drain`` seconds;
3. what still runs is cancelled, and its readers are told in their streams;
4. connections and the port are closed.

A second signal goes to step 3 at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn

from heptagram_client.transports.grpc_aio import AsyncGrpcTransport
from heptagram_gateway.app import build_app, build_services
from heptagram_gateway.config import Config
from heptagram_gateway.observe import Write, open_log
from heptagram_gateway.protocol import ConnectionLimits, bounded_protocol
from heptagram_gateway.services import Services
from heptagram_gateway.triton import TritonModels

_KEEP_ALIVE_S: Final = 5
_LAST_WORDS_S: Final = 2  # for the error events of step 3
_BACKLOG: Final = 512


class Front(uvicorn.Server):
    """One front. ``ready`` is called once it serves; ``end`` begins the ordered end, a second time it cuts short."""

    def __init__(self, config: uvicorn.Config, services: Services, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._services = services
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        # As for a job in the background of a script; uvicorn listens to it all the same.
        self._ignores_sigint = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The signal handler, which may only ask the loop."""
        if sig != signal.SIGINT or not self._ignores_sigint:
            self._loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._drain())
        else:
            self._hurry.set()

    async def _drain(self) -> None:
        gate = self._services.gate
        gate.drain()
        idle = asyncio.create_task(gate.wait_idle(self._services.config.drain))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait((idle, hurry), return_when=asyncio.FIRST_COMPLETED)
        for task in (idle, hurry):
            task.cancel()
        await self._services.close()
        await gate.wait_idle(_LAST_WORDS_S)
        self.should_exit = True


async def serve(config: Config, *, ready: Callable[[str], None]) -> None:
    """Serve until a signal; ``ready`` is called with the URL once requests are taken.

    Raises:
        OSError: the address or the log cannot be used.
        TelemetryError: traces are wanted, but what writes them is not installed.
    """
    write, log = open_log(config.access_log)
    with log, _listening(config) as listener:
        netloc = config.triton.netloc
        transport = AsyncGrpcTransport(netloc)
        services = build_services(config, transport, transport, TritonModels(netloc))
        front = Front(uvicorn_config(config, services, write), services, lambda: ready(_url(listener)))
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as behind nohup
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, front.end)
        try:
            await front.serve(sockets=[listener])
        finally:
            await services.close()


def uvicorn_config(config: Config, services: Services, write: Write) -> uvicorn.Config:
    limits = ConnectionLimits(config.header_bytes, config.header_timeout, config.write_timeout, config.connections)
    return uvicorn.Config(
        build_app(services, write),
        http=bounded_protocol(limits),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        h11_max_incomplete_event_size=config.header_bytes,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )


@contextmanager
def _listening(config: Config) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG) as listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
