"""A front on a real port, in a thread with a loop of its own, over a scripted server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from openai import OpenAI

from heptagram_client.transports.address import Address
from heptagram_gateway.app import build_services
from heptagram_gateway.config import Config
from heptagram_gateway.models import served_by_default
from heptagram_gateway.observe import line_of
from heptagram_gateway.record import Record
from heptagram_gateway.services import Services
from heptagram_gateway.serving import Front, uvicorn_config
from tests.gateway.scripted import Script, ScriptedServer, TextScript

HELLO = [{"role": "user", "content": "Hello"}]


@dataclass
class Running:
    """``log`` holds the lines of the access log."""

    server: ScriptedServer
    port: int
    log: list[dict[str, Any]] = field(default_factory=list)
    services: Services | None = None
    front: Front | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=20, verify=False)  # no certificates to load: half the time

    def openai(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def post(self, path: str = "/v1/chat/completions", **body: Any) -> httpx2.Response:
        with self.http() as client:
            return client.post(path, json={"model": "chat", "messages": HELLO, **body})

    def get(self, path: str) -> httpx2.Response:
        with self.http() as client:
            return client.get(path)

    def chunks(self, **body: Any) -> list[Any]:
        """The data of a stream; the last one is ``[DONE]``."""
        answer = self.post(stream=True, **body)
        assert answer.status_code == 200, answer.text
        return data_of(answer.text)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def call(self, function: Callable[[], Any]) -> None:
        """Call it inside the front's loop."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(function)

    def wait(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)

    def lines(self, count: int) -> list[dict[str, Any]]:
        """The access log, once it has so many lines; they are written behind the answers."""
        self.wait(lambda: len(self.log) >= count)
        assert len(self.log) == count
        return self.log

    def at_rest(self) -> None:
        """Nothing of any request is left, and its line is in the log."""
        self.wait(lambda: not self.server.live and not self._at_work())
        written = threading.Event()
        self.call(written.set)  # a line is written in the turn of the loop in which the request stops counting
        assert written.wait(10)

    def _at_work(self) -> bool:
        """A request is inside the front, behind the gate or not: an error is answered after the gate was left."""
        assert self.services is not None
        lines = self.services.metrics.render().decode().split("\n")
        return "heptagram_gateway_running 0.0" not in lines or bool(self.services.gate.running)


def data_of(text: str) -> list[Any]:
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in found]


def joined(chunks: list[Any], key: str) -> str:
    """The pieces of one kind in a stream."""
    return "".join(choice["delta"].get(key) or "" for chunk in chunks[:-1] for choice in chunk.get("choices", ()))


def config_of(**fields: Any) -> Config:
    return replace(Config(Address("grpc", "none", 1), served_by_default()), **fields)


@contextmanager
def running(script: Script, texts: TextScript | None = None, **fields: Any) -> Iterator[Running]:
    """A front for the time of the block; afterwards nothing is left in it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = Running(ScriptedServer(script, texts), listener.getsockname()[1])
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(_serve(here, listener, config_of(**fields), started)))
        thread.start()
        assert started.wait(10)
        try:
            yield here
            here.at_rest()
        finally:
            assert here.front is not None
            here.call(here.front.end)
            here.call(here.front.end)
            thread.join(20)
            assert not thread.is_alive()


async def _serve(here: Running, listener: socket.socket, config: Config, started: threading.Event) -> None:
    server = here.server
    here.services = build_services(config, server, server, server)

    def write(record: Record) -> None:
        here.log.append(line_of(record))

    here.front = Front(uvicorn_config(config, here.services, write), here.services, started.set)
    here.loop = asyncio.get_running_loop()
    await here.front.serve(sockets=[listener])
