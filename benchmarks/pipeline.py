"""Suite on the engine's thread: the host's part of a step under the forward or in turn with it, by batch and kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.bench_engine import BenchEngine
from benchmarks.steps import BATCHES, Suite
from benchmarks.table import table
from benchmarks.timeline import Step, Timeline, drawn
from benchmarks.turns import Run, in_turn
from benchmarks.workload import ordinary
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.targets.base import Target
from heptagram_backend.targets.wrapped import WrappedTarget
from heptagram_kernels.layout import ROWS
from heptagram_wire.codec import encode_event
from heptagram_wire.events import Event

_BATCH: Final = BATCHES[-1]
_PROMPT: Final = 64  # so that all begin together; what is asked does not matter here
_TOKENS: Final = 32
_ASLEEP: Final = 0.01
_UNDER: Final = "under the forward"
_IN_TURN: Final = "in turn"
_MODES: Final[Mapping[str, bool]] = {_UNDER: True, _IN_TURN: False}


class _Asleep(WrappedTarget):
    """As an accelerator seems to the host: a step takes 10 ms and none of its CPU. The logits are always the same."""

    def __init__(self, inner: Target) -> None:
        super().__init__(inner)
        self._logits = torch.randn((_BATCH, ROWS, inner.vocab_size), generator=torch.Generator().manual_seed(7))

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """Nothing is kept."""

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:  # noqa: ARG002
        time.sleep(_ASLEEP)
        return self._logits[: len(slots)]


class _Encoding:
    """Does with its events what a sink of the server does in Python: one JSON text each."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.bytes = 0

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        self.bytes += sum(len(encode_event(event)) for event in events)
        if final:
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        raise RuntimeError("the request was refused") from error


def pipeline(engine: BenchEngine, requests: Sequence[GenerationRequest], rounds: int) -> Suite:
    """The model here, and a device that computes elsewhere; both ways give the same tokens in as many steps."""
    threads = torch.get_num_threads()
    places = {f"CPU, {threads} thread{'s' * (threads > 1)}": engine.model, "asleep 10 ms": _Asleep(engine.model)}
    parts = [_on(place, engine, target, requests, rounds) for place, target in places.items()]
    rows = [row for part in parts for row in part[0]]
    header = ("target", "batch", *(f"ms a step {mode}" for mode in _MODES), "ratio", "of the whole", "of CPU time")
    text = table(header, rows) + "".join(f"\n\n{part[1]}" for part in parts)
    return Suite("The host's part of a step, under the forward and in turn", text, {"rows": rows})


def _on(
    place: str, engine: BenchEngine, target: Target, requests: Sequence[GenerationRequest], rounds: int
) -> tuple[list[list[Any]], str]:
    """Rows of the table, and the timelines of the largest batches."""
    limits = EngineLimits("1", _BATCH, 600_000, requests[0].vocabulary or "")
    options = {
        "enable_prefix_caching": False,  # both engines write the same cache, so neither may keep anything in it
        "max_num_batched_tokens": _BATCH * (ROWS + engine.model.prefill_chunk),  # all prompts at once
    }
    engines = {
        mode: assemble(engine.parts_over(target, pipelined=on, **options), limits) for mode, on in _MODES.items()
    }
    timelines = {mode: Timeline(one) for mode, one in engines.items()}
    seen: dict[tuple[str, str], list[Step]] = {}
    kinds = _kinds([replace(request, prompt_ids=request.prompt_ids[-_PROMPT:]) for request in requests])
    arms = {
        f"{kind}, {mode}": partial(_run, engines[mode], timelines[mode], batch, seen.setdefault((kind, mode), []))
        for kind, batch in kinds.items()
        for mode in _MODES
    }
    try:
        turns = in_turn(arms, rounds)
    finally:
        for one in engines.values():
            one.close()
    rows: list[list[Any]] = []
    for kind in kinds:
        pair = [f"{kind}, {mode}" for mode in _MODES]
        ratios = [f"{turns.ratio(pair[0], pair[1], column):.3f}" for column in ("step_ms", "seconds", "cpu_s")]
        rows.append([place, kind, *(turns.median(arm, "step_ms") for arm in pair), *ratios])
    drawings = [
        f"{place}, {kind}, {mode}:\n\n```\n{drawn(seen[kind, mode])}\n```" for kind in [*kinds][-2:] for mode in _MODES
    ]
    return rows, "\n\n".join(drawings)


def _kinds(requests: Sequence[GenerationRequest]) -> dict[str, Sequence[GenerationRequest]]:
    free = [replace(ordinary(one), ignore_eos=True, max_tokens=_TOKENS) for one in requests]
    kinds: dict[str, Sequence[GenerationRequest]] = {}
    for size in BATCHES:
        kinds[f"{size} ordinary"] = free[:size]
        kinds[f"{size} strict"] = requests[:size]
    kinds[f"{_BATCH - 1} ordinary, 1 strict"] = [*free[: _BATCH - 1], requests[_BATCH - 1]]
    return kinds


def _run(engine: K7Engine, timeline: Timeline, requests: Sequence[GenerationRequest], seen: list[Step]) -> Run:
    """One batch from the first prompt to the last end; ``step_ms`` is of the steps that most of them share."""
    sinks = [_Encoding() for _ in requests]
    begin, cpu = time.perf_counter(), time.process_time()
    for request, sink in zip(requests, sinks, strict=True):
        engine.submit(request, sink)
    for sink in sinks:
        sink.done.wait()
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    steps = timeline.fullest()
    seen += steps
    return {"step_ms": 1e3 * median(step.end - step.begin for step in steps), "seconds": seconds, "cpu_s": cpu_s}
