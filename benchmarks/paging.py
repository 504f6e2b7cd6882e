"""Suites on the paged cache and the scheduler: where blocks lie, shared prefixes, a long prompt beside streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from benchmarks.bench_engine import MODEL
from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import Run, Turns, in_turn
from benchmarks.workload import answers
from heptagram_backend.checkpoint import resolve
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines.k7 import build
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.targets import load_target
from heptagram_backend.targets.base import PagedTarget
from heptagram_kernels.layout import K7_LAYOUT, ROWS
from heptagram_wire.events import Event, Failure, Finish, Ping, Start
from heptagram_wire.requests import encode_request

_TOOL_TOKENS: Final = 1500
_LONG: Final = 4000
_QUIET: Final = 24  # tokens of a stream before the long prompt comes
_LAYOUTS: Final[dict[str, Callable[[int], list[int]]]] = {
    "in a row": lambda count: list(range(3, 3 + count)),
    "shared prefix": lambda count: [*range(500, 500 + count // 2), *range(3, 3 + count - count // 2)],
    "scattered": lambda count: [(7 * place) % 500 for place in range(count)],
}


class _Timed:
    """A sink that notes when something came: by the clock, and in what this process had computed by then."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        self.done = threading.Event()
        self.enough = threading.Event()

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        if any(isinstance(event, Failure) for event in events):
            raise RuntimeError(f"the request failed: {events[-1]}")
        if not all(isinstance(event, Start | Ping | Finish) for event in events):
            self.times.append((time.perf_counter(), time.process_time()))
        if len(self.times) >= _QUIET:
            self.enough.set()
        if final:
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        raise RuntimeError("the request was refused") from error


def blocks(rounds: int) -> Suite:
    """One step of batch 1, by where the blocks of its sequence lie. The logits are the same."""
    target = load_target(EngineOptions(max_model_len=4096), resolve(MODEL))
    assert isinstance(target, PagedTarget)
    arms = {
        f"context {context}, {name}": partial(_step, target, context, layout(-(-(context + ROWS) // 32)))
        for context in (400, 2000, 4000)
        for name, layout in _LAYOUTS.items()
    }
    turns = in_turn(arms, rounds)
    rows = []
    for arm in arms:
        straight = f"{arm.partition(',')[0]}, in a row"
        rows.append([arm, turns.median(arm, "step_ms"), f"{turns.ratio(arm, straight, 'step_ms'):.2f}x"])
    return _suite(
        "A step by the places of its blocks, batch 1", ("arm", "ms a step", "to blocks in a row"), rows, turns
    )


def _step(target: PagedTarget, context: int, table_: list[int]) -> Run:
    target.set_blocks(0, table_)
    tokens, positions, slots = torch.zeros((1, ROWS), dtype=torch.int64), torch.tensor([context]), torch.tensor([0])
    times = []
    for _ in range(5):
        start = time.perf_counter()
        target.forward(tokens, positions, slots)
        times.append(time.perf_counter() - start)
    return {"step_ms": 1e3 * median(times)}


def shared_prefix(rounds: int) -> Suite:
    """Time to the first token of two requests with the same tools: the first one of a session, and the next one."""
    engine, preprocessor = _engine()
    session = iter(range(10**6))

    def first_tokens() -> Run:
        name = next(session)
        first, second = (_tool_request(preprocessor, name, text) for text in ("What can you do?", "Hello."))
        return {"first_s": _first_token(engine, first), "next_s": _first_token(engine, second)}

    try:
        turns = in_turn({"session": first_tokens}, rounds)
    finally:
        engine.close()
    gain = median(run["first_s"] / run["next_s"] for run in turns.runs["session"])
    rows = [
        ["first request of a session", turns.median("session", "first_s"), "1.00x"],
        ["next one, same tools", turns.median("session", "next_s"), f"{gain:.2f}x"],
    ]
    title = f"First token behind {_TOOL_TOKENS} tokens of tools"
    return _suite(title, ("request", "s to the first token", "faster"), rows, turns)


def long_prompt(rounds: int) -> Suite:
    """Gaps between the tokens of running streams, before and while a long prompt is written."""
    engine, preprocessor = _engine(enable_prefix_caching=False)
    arms = {f"{count} streams": partial(_beside, engine, preprocessor, count) for count in (1, 4)}
    try:
        turns = in_turn(arms, rounds, warm_up=False)
    finally:
        engine.close()
    names = ("quiet_ms", "beside_ms", "worst_ms", "prompt_s", "slower", "cpu_slower")
    rows = [[arm, *[turns.median(arm, name) for name in names]] for arm in arms]
    title = f"Streams while a prompt of {_LONG} tokens is written"
    header = (
        "arm", "ms a token before", "ms beside", "longest gap, ms", "s for the prompt", "slower", "slower by CPU time"
    )  # fmt: skip
    return _suite(title, header, rows, turns)


def _beside(engine: Engine, preprocessor: Preprocessor, count: int) -> Run:
    base = preprocessor.prepare(encode_request(answers(1, max_tokens=600)[0]))
    stream = replace(base, constraint=None, ignore_eos=True, num_speculative_tokens=0)
    sinks = [_Timed() for _ in range(count)]
    ids = [engine.submit(stream, sink) for sink in sinks]
    for sink in sinks:
        sink.enough.wait()
    long, begin = _Timed(), time.perf_counter()
    prompt = tuple((31 * place) % 40_000 + 100 for place in range(_LONG))
    engine.submit(replace(stream, prompt_ids=prompt, max_tokens=1), long)
    long.done.wait()
    end = time.perf_counter()
    for id in ids:
        engine.cancel(id)
    for sink in sinks:
        sink.done.wait()
    quiet = [gap for sink in sinks for gap in _gaps(sink, 0.0, begin)]
    beside = [gap for sink in sinks for gap in _gaps(sink, begin, end)]
    before, cpu_before = (median(numbers) for numbers in zip(*quiet, strict=True))
    during, cpu_during = (median(numbers) for numbers in zip(*beside, strict=True))
    return {
        "quiet_ms": 1e3 * before,
        "beside_ms": 1e3 * during,
        "worst_ms": 1e3 * max(gap for gap, _ in beside),
        "prompt_s": end - begin,
        "slower": during / before,
        "cpu_slower": cpu_during / cpu_before,
    }


def _gaps(sink: _Timed, begin: float, end: float) -> list[tuple[float, float]]:
    """Between neighbouring sends within ``begin .. end``: seconds by the clock, and of this process's CPU time."""
    pairs = zip(sink.times, sink.times[1:], strict=False)
    return [
        (later - earlier, cpu_later - cpu)
        for (earlier, cpu), (later, cpu_later) in pairs
        if begin <= earlier and later <= end
    ]


def _engine(**options: Any) -> tuple[Engine, Preprocessor]:
    folder: Path = resolve(MODEL)
    engine = EngineOptions(max_model_len=4096, **options)
    release = Release("bench", str(folder), "chatml_json", k7_layout=K7_LAYOUT.describe(), engine=engine)
    return build(release, folder, "1"), Preprocessor(release, folder)


def _tool_request(preprocessor: Preprocessor, session: int, text: str) -> GenerationRequest:
    """A request behind the same long list of tools, told apart from other sessions by its first words."""
    tools: list[dict[str, Any]] = []
    while True:
        tools.append(_tool(len(tools)))
        body = {
            "messages": [{"role": "system", "content": f"Session {session}."}, {"role": "user", "content": text}],
            "tools": tools,
            "max_tokens": 1,
        }
        request = preprocessor.prepare(encode_request(body))
        if len(request.prompt_ids) >= _TOOL_TOKENS:
            return request


def _tool(number: int) -> dict[str, Any]:
    properties = {f"field_{name}": {"type": "string", "description": f"The {name} of it."} for name in ("a", "b", "c")}
    parameters = {"type": "object", "properties": properties, "required": ["field_a"]}
    function = {"name": f"tool_{number}", "description": f"Does thing number {number}.", "parameters": parameters}
    return {"type": "function", "function": function}


def _first_token(engine: Engine, request: GenerationRequest) -> float:
    sink, begin = _Timed(), time.perf_counter()
    engine.submit(request, sink)
    sink.done.wait()
    return time.perf_counter() - begin


def _suite(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], turns: Turns) -> Suite:
    return Suite(title, table(header, rows), {"runs": turns.json()})
