"""One scripted request over gRPC or OpenAI's API, and a steady load of them: what each client was told, and when."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from heptagram_client import Client, HeptagramClientError
from tests.server.probe import Script

Ask = Callable[[Script], str | None]


def over_grpc(url: str, *, idle_timeout: float = 30.0) -> Ask:
    """Asks Triton; the answer is what is wrong, None where nothing is."""

    def ask(script: Script) -> str | None:
        try:
            with Client(url, idle_timeout=idle_timeout) as client:
                return wrong(script, client.complete(json.loads(script.to_json())).content)
        except HeptagramClientError as error:
            return f"{type(error).__name__}: {error}"

    return ask


def over_openai(port: int, *, idle_timeout: float = 60.0) -> Ask:
    """Asks the gateway for a stream; the answer is what is wrong, None where nothing is."""

    def ask(script: Script) -> str | None:
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": script.to_json()}]}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=idle_timeout)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            response = connection.getresponse()
            said = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        if response.status != 200:
            return f"{response.status}: {said}"
        return wrong_stream(script, said)

    return ask


def wrong_stream(script: Script, said: str) -> str | None:
    """What is wrong with a whole stream of server-sent events."""
    events = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return f"cut behind {said[-80:]!r}"
    chunks = [json.loads(event) for event in events[:-1]]
    if "error" in chunks[-1]:
        return f"told in the stream: {chunks[-1]['error']['message']}"
    deltas = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    return wrong(script, "".join(deltas))


def wrong(script: Script, text: str | None) -> str | None:
    whole = "".join(f"{number} " for number in range(script.deltas))
    return None if text == whole else f"{text!r} is not the whole answer"


@dataclass(frozen=True, slots=True)
class Told:
    """What one client was told, ``fault`` None where all was well; times in seconds of the monotonic clock."""

    front: str
    began: float
    ended: float
    fault: str | None


class Load:
    """Clients of all ``fronts`` that come every ``every_s`` seconds, whatever became of those before."""

    def __init__(self, fronts: Mapping[str, Ask], script: Script, *, every_s: float) -> None:
        self.told: list[Told] = []
        self._fronts = fronts
        self._script = script
        self._every_s = every_s
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(500)

    def _arrive(self) -> list[Future[None]]:
        asked: list[Future[None]] = []
        while not self._over.wait(self._every_s):
            asked += [self._pool.submit(self._ask, front) for front in self._fronts]
        return asked

    def _ask(self, front: str) -> None:
        began = time.monotonic()
        fault = self._fronts[front](self._script)
        self.told.append(Told(front, began, time.monotonic(), fault))

    def answered_since(self, moment: float) -> bool:
        """Whether every front has answered a client that came after ``moment``."""
        well = {told.front for told in list(self.told) if told.began > moment and told.fault is None}
        return well == set(self._fronts)

    def __enter__(self) -> Self:
        self._arrivals = self._pool.submit(self._arrive)
        return self

    def __exit__(self, *unused: object) -> None:
        """Wait until the last client has been told."""
        self._over.set()
        for each in self._arrivals.result():
            each.result()
        self._pool.shutdown()
