"""What gateway and ensemble add to the engine: to the first piece of an answer, to each further one, at full speed.

The scripted engine of the server's tests sends pieces that are the time of their sending, so that each piece's way is
measured by itself and no model's noise hides it. The engine's own arm calls it in this process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event as Flag
from typing import Any, Final

from benchmarks.served import engine_here, served_model, through_client, through_engine
from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import Run, Turns, in_turn
from heptagram_backend.errors import HeptagramError
from heptagram_backend.server.launch import free_address, launch, models_of
from heptagram_client.client import Client
from heptagram_wire.events import Event, TextDelta
from heptagram_wire.requests import encode_request
from tests.server.gateway import running_gateway
from tests.server.probe import ProbeEngine, ProbePreprocessor, Script
from tests.server.repository import write_probes

ENGINE, ENSEMBLE, GATEWAY = "engine", "ensemble, gRPC", "gateway, HTTP"
_PATH: Final = "/v1/chat/completions"
_HEAD: Final = ("ms", ENGINE, ENSEMBLE, GATEWAY, "ensemble adds", "gateway adds", "both add")


@dataclass(slots=True)
class Arrivals:
    """When the pieces of one answer came, in ns, and what they say."""

    asked: int = field(default_factory=time.monotonic_ns)
    pieces: list[tuple[int, str]] = field(default_factory=list)

    def see(self, text: str) -> None:
        self.pieces.append((time.monotonic_ns(), text))

    def run(self) -> Run:
        """``way_ms``: of a piece, from the engine to the reader."""
        (first, _), (last, _) = self.pieces[0], self.pieces[-1]
        return {
            "first_ms": 1e-6 * (first - self.asked),
            "way_ms": 1e-6 * median(at - int(text) for at, text in self.pieces),
            "piece_ms": 1e-6 * (last - first) / max(1, len(self.pieces) - 1),
            "pieces": float(len(self.pieces)),
        }


Ask = Callable[[Mapping[str, Any], Arrivals], None]


def scripted(rounds: int, *, pieces: int = 50, step_ms: int = 10) -> Suite:
    """Paced answers for the latency, unpaced ones for the cost of a piece."""
    paced = Script(deltas=pieces, step_ms=step_ms, stamp=True)
    with _scripted_arms() as arms:
        slow = in_turn(_asking(arms, paced), rounds)
        fast = in_turn(_asking(arms, replace(paced, deltas=10 * pieces, step_ms=0)), rounds)
    names = {"first_ms": "to the first piece", "way_ms": f"way of a piece, one every {step_ms} ms"}
    rows = [_row(label, slow, name) for name, label in names.items()]
    rows.append(_row("a piece at full speed", fast, "piece_ms"))
    data = {"paced": slow.json(), "full speed": fast.json()}
    return Suite("Gateway and ensemble over the scripted engine", table(_HEAD, rows), data)


def smollm2(requests: Sequence[Mapping[str, Any]], rounds: int) -> Suite:
    """The embedded model, each request through all three."""
    with (
        served_model() as url,
        running_gateway(url, "--access-log", "off") as gateway,
        Client(url) as client,
        engine_here() as (preprocessor, engine),
    ):
        turns = [
            in_turn(
                {
                    ENGINE: partial(through_engine, preprocessor, engine, encode_request(dict(request))),
                    ENSEMBLE: partial(through_client, client, request),
                    GATEWAY: partial(_watched_through_gateway, gateway.address, request),
                },
                rounds,
            )
            for request in requests
        ]
    whole = Turns({arm: [run for each in turns for run in each.runs[arm]] for arm in (ENGINE, ENSEMBLE, GATEWAY)})
    rows = [_row("to the first content", whole, "first_ms"), _row("a chunk", whole, "chunk_ms")]
    return Suite("Gateway and ensemble over SmolLM2", table(_HEAD, rows), {"runs": [each.json() for each in turns]})


def _row(label: str, turns: Turns, name: str) -> list[Any]:
    """Medians of the arms, and medians of what each adds to the one before in the same round."""
    arms = (ENGINE, ENSEMBLE, GATEWAY)
    added = [(ENSEMBLE, ENGINE), (GATEWAY, ENSEMBLE), (GATEWAY, ENGINE)]
    return [label, *[turns.median(arm, name) for arm in arms], *[_difference(turns, *pair, name) for pair in added]]


def _difference(turns: Turns, one: str, other: str, name: str) -> float:
    pairs = zip(turns.runs[one], turns.runs[other], strict=True)
    return median(first[name] - second[name] for first, second in pairs)


def _asking(arms: Mapping[str, Ask], script: Script) -> Mapping[str, Callable[[], Run]]:
    request = {"messages": [{"role": "user", "content": script.to_json()}], "stream": True}
    return {name: partial(_ask, ask, request, script.deltas) for name, ask in arms.items()}


def _ask(ask: Ask, request: Mapping[str, Any], pieces: int) -> Run:
    arrivals = Arrivals()
    ask(request, arrivals)
    run = arrivals.run()
    if run["pieces"] != pieces:
        raise ValueError(f"{run['pieces']:g} pieces came of {pieces}")
    return run


@contextmanager
def _scripted_arms() -> Iterator[Mapping[str, Ask]]:
    with TemporaryDirectory() as folder, launch(write_probes(Path(folder) / "repository"), free_address()) as server:
        server.wait_ready(models_of(Path(folder) / "repository"), timeout_s=300)
        url = server.address.grpc_url
        with running_gateway(url, "--access-log", "off") as gateway, Client(url) as client:
            yield {
                ENGINE: partial(_through_scripted_engine, ProbeEngine()),
                ENSEMBLE: partial(_through_client, client),
                GATEWAY: partial(_through_gateway, gateway.address),
            }


class _Sink:
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self.done = Flag()

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._arrivals.see(event.text)
        if final:
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        raise error


def _through_scripted_engine(engine: ProbeEngine, request: Mapping[str, Any], arrivals: Arrivals) -> None:
    sink = _Sink(arrivals)
    engine.submit(ProbePreprocessor().prepare(json.dumps(request).encode()), sink)
    sink.done.wait()


def _through_client(client: Client, request: Mapping[str, Any], arrivals: Arrivals) -> None:
    with client.stream(request) as events:
        for event in events:
            if isinstance(event, TextDelta):
                arrivals.see(event.text)


def _through_gateway(address: tuple[str, int], request: Mapping[str, Any], arrivals: Arrivals) -> None:
    for chunk in _chunks(address, request):
        for choice in chunk["choices"]:
            if text := choice["delta"].get("content"):
                arrivals.see(text)


def _watched_through_gateway(address: tuple[str, int], request: Mapping[str, Any]) -> Run:
    """What :class:`benchmarks.served.Watch` measures of events, of chunks."""
    begun = time.perf_counter()
    first = last = 0.0
    steps = 0
    for chunk in _chunks(address, {**request, "stream_options": {"include_usage": True}}):
        if chunk["choices"]:
            last = time.perf_counter()
            first = first or last
        else:
            steps = chunk["metrics"]["speculative_decoding"]["num_spec_steps"]
    return {"first_ms": 1e3 * (first - begun), "chunk_ms": 1e3 * (last - first) / max(1, steps - 1)}


def _chunks(address: tuple[str, int], request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """On a connection of its own: between slow runs the gateway would close a kept one."""
    body = json.dumps({**request, "stream": True}).encode()
    with closing(HTTPConnection(*address, timeout=120)) as connection:
        connection.request("POST", _PATH, body, {"content-type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise ValueError(chunk["error"]["message"])
                yield chunk
