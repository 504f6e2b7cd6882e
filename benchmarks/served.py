"""What Triton adds: the ensemble over gRPC with our client, against the engine called in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.bench_engine import MODEL
from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import Run, in_turn
from heptagram_backend.checkpoint import resolve
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines import k7
from heptagram_backend.errors import HeptagramError
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import Release
from heptagram_backend.server.launch import free_address, launch, models_of
from heptagram_backend.server.repository import project_repository
from heptagram_client.client import Client
from heptagram_wire.events import Event, Finish, Ping, Start
from heptagram_wire.requests import encode_request


class Watch:
    """When events came. The first after `start` and the last bound the chunks, of which each step makes one."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.start = self.first = self.last = 0.0
        self.steps = 0

    def see(self, event: Event) -> None:
        now = time.perf_counter()
        match event:
            case Start():
                self.start = now
            case Finish(stats=stats):
                self.last, self.steps = now, stats.steps
            case Ping():
                pass
            case _:
                self.first = self.first or now

    def run(self) -> Run:
        return {
            "start_ms": 1e3 * (self.start - self.begun),
            "first_ms": 1e3 * (self.first - self.begun),
            "chunk_ms": 1e3 * (self.last - self.first) / max(1, self.steps - 1),
            "total_ms": 1e3 * (self.last - self.begun),
        }


class Sink:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.done = threading.Event()
        self.error: HeptagramError | None = None

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        for event in events:
            self._watch.see(event)
        if final:
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        self.error = error
        self.done.set()


def ensemble_against_engine(requests: Sequence[Mapping[str, Any]], rounds: int) -> Suite:
    """Each request through both, in turn."""
    with served_model() as url, Client(url) as client, engine_here() as (preprocessor, engine):
        runs = [
            in_turn(
                {
                    "ensemble": partial(through_client, client, request),
                    "engine": partial(through_engine, preprocessor, engine, encode_request(dict(request))),
                },
                rounds,
            )
            for request in requests
        ]
    names = {"start_ms": "`start`", "first_ms": "first content", "chunk_ms": "a chunk", "total_ms": "all"}
    rows = []
    for name, label in names.items():
        pairs = [(one[name], other[name]) for run in runs for one, other in zip(*run.runs.values(), strict=True)]
        theirs, ours = (sorted(column)[len(pairs) // 2] for column in zip(*pairs, strict=True))
        rows.append([label, theirs, ours, sorted(one - other for one, other in pairs)[len(pairs) // 2]])
    header = ("until", "ensemble, ms", "engine, ms", "difference, ms")
    return Suite("Ensemble against engine", table(header, rows), {"runs": [run.json() for run in runs]})


def through_client(client: Client, request: Mapping[str, Any]) -> Run:
    watch = Watch()
    with client.stream(request) as events:
        for event in events:
            watch.see(event)
    return watch.run()


def through_engine(preprocessor: Preprocessor, engine: Engine, raw: str) -> Run:
    watch = Watch()
    sink = Sink(watch)
    engine.submit(preprocessor.prepare(raw), sink)
    sink.done.wait()
    if sink.error is not None:
        raise sink.error
    return watch.run()


@contextmanager
def served_model() -> Iterator[str]:
    repository = project_repository()
    with launch(repository, free_address()) as server:
        server.wait_ready(models_of(repository), timeout_s=300)
        yield server.address.grpc_url


@contextmanager
def engine_here() -> Iterator[tuple[Preprocessor, Engine]]:
    release, folder = Release.load(project_repository() / "generate" / "1"), resolve(MODEL)
    engine = k7.build(release, folder, "bench")
    try:
        yield Preprocessor(release, folder), engine
    finally:
        engine.close()
