"""What sampling costs: nothing to greedy requests, and how much to those that ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from benchmarks.bench_engine import BenchEngine
from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import Run, in_turn
from benchmarks.workload import ordinary
from heptagram_backend.draw import RowSampler
from heptagram_backend.generation import GenerationRequest, SamplingParams
from heptagram_kernels.bitmask import pack
from heptagram_kernels.cpu import token_logprobs, verify_sampled
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import load_ops
from heptagram_kernels.sampling import Sampling

_WARM: Final = SamplingParams(temperature=1.0, seed=1)
_KINDS: Final[Mapping[str, tuple[SamplingParams, int | None]]] = {
    "greedy": (SamplingParams(), None),
    "greedy, 5 logprobs": (SamplingParams(), 5),
    "temperature 1": (_WARM, None),
    "top-k 50, top-p 0.95": (replace(_WARM, top_k=50, top_p=0.95), None),
    "top-p 0.9": (replace(_WARM, top_p=0.9), None),
    "penalties": (replace(_WARM, frequency_penalty=0.5, repetition_penalty=1.1), None),
}
_WIDTHS: Final = (49_152, 129_280)
_SEEN: Final = 1_500  # tokens of a history


def sampling(engine: BenchEngine, requests: Sequence[GenerationRequest], rounds: int) -> Suite:
    """Ordinary requests of the free model in one batch, by kind of sampling; then one row at two widths."""
    step = engine.parts.step
    sampler = _Timed(step._sampler, step._inputs._program)
    requests = [ordinary(request) for request in requests]
    arms: dict[str, Callable[[], Run]] = {"greedy, no sampler in the step": partial(_run, engine, _Absent(), requests)}
    for name, (params, logprobs) in _KINDS.items():
        asked = [replace(request, sampling=params, logprobs=logprobs) for request in requests]
        arms[name] = partial(_run, engine, sampler, asked)
    turns = in_turn(arms, rounds)
    engine.parts.step._sampler = sampler.inner
    columns = {"ms a step": "step_ms", "sampler ms a step": "sampler_ms_per_step", "tokens a step": "tokens_per_step"}
    rows: list[list[Any]] = [[arm, *[turns.median(arm, name) for name in columns.values()]] for arm in arms]
    ratio = turns.ratio("greedy", "greedy, no sampler in the step", "step_ms")
    batch = f"Batches of {len(requests)}. A greedy step takes {ratio:.3f} of one without any sampler."
    one_row = {width: _one_row(width) for width in _WIDTHS}
    widths: list[list[Any]] = [[name, *[one_row[width][name] for width in _WIDTHS]] for name in one_row[_WIDTHS[0]]]
    text = f"{table(('arm', *columns), rows)}\n\n{batch}\n\n"
    text += table(("us a row of normal logits", *[f"V = {width:,}" for width in _WIDTHS]), widths)
    return Suite("Sampling", text, {"runs": turns.json(), "greedy_ratio": ratio, "one_row_us": one_row})


class _Timed:
    """Counts the time that a sampler takes of the step, the draws of ``program`` included."""

    def __init__(self, inner: RowSampler, program: Any) -> None:
        self.inner = inner
        self.seconds = 0.0
        device = program._device
        program._device = replace(device, verify_sampled=partial(self._timed, device.verify_sampled))

    def arguments(self, *arguments: Any) -> Any:
        return self._timed(self.inner.arguments, *arguments)

    def score(self, *arguments: Any) -> Any:
        return self._timed(self.inner.score, *arguments)

    def _timed(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = call(*arguments, **named)
        self.seconds += time.perf_counter() - start
        return result


class _Absent:
    """A step as it was before there was sampling."""

    seconds = 0.0

    def arguments(self, *arguments: Any) -> None: ...

    def score(self, *arguments: Any) -> dict[int, Any]:
        del arguments
        return {}


def _run(engine: BenchEngine, sampler: _Timed | _Absent, requests: Sequence[GenerationRequest]) -> Run:
    engine.parts.step._sampler = sampler  # type: ignore[assignment]
    before = sampler.seconds
    measured = engine.run(requests)
    return measured.numbers() | {"sampler_ms_per_step": 1e3 * (sampler.seconds - before) / measured.steps}


def _one_row(width: int) -> dict[str, float]:
    """Microseconds of the operations on one all-ones row."""
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(size=(1, ROWS, width), scale=3).astype(np.float32)).bfloat16()
    common: dict[str, Any] = {
        "logits": logits,
        "mask_pool": torch.from_numpy(pack(np.ones(width, dtype=np.bool_))[None]),
        "mask_rows": torch.zeros((1, ROWS), dtype=torch.int64),
    }
    step: dict[str, Any] = {
        "token_ids": torch.zeros((1, ROWS), dtype=torch.int64),
        "draft_counts": torch.zeros(1, dtype=torch.int64),
        "out_verified": torch.zeros((1, ROWS), dtype=torch.int64),
        "out_accepted": torch.zeros(1, dtype=torch.int64),
    }
    entry: dict[str, Any] = {
        "places": torch.zeros((1, 2), dtype=torch.int64),
        "tokens": torch.zeros(1, dtype=torch.int64),
        "out_chosen": torch.zeros(1, dtype=torch.float64),
        "out_ids": torch.zeros((1, 5), dtype=torch.int64),
        "out_logprobs": torch.zeros((1, 5), dtype=torch.float64),
    }
    greedy: dict[str, Any] = {
        "logits": logits[:, 0],
        "mask_pool": common["mask_pool"],
        "mask_rows": torch.zeros(1, dtype=torch.int64),
        "real_tokens": width,
        "out": torch.zeros(1, dtype=torch.int64),
    }
    seen = torch.from_numpy(random.choice(width, _SEEN, replace=False))
    operations: dict[str, Callable[[], None]] = {
        "greedy": partial(load_ops("cpu").masked_argmax, **greedy),
        "5 logprobs": partial(token_logprobs, **common, **entry),
    }
    for name, (params, _) in _KINDS.items():
        if not params.is_greedy:
            operations[name] = partial(verify_sampled, **common, **step, sampling=_arguments(params, seen))
    timed = {name: partial(_microseconds, operation) for name, operation in operations.items()}
    turns = in_turn(timed, 9)
    return {name: turns.median(name, "us") for name in timed}


def _microseconds(operation: Callable[[], None], repeats: int = 10) -> Run:
    start = time.perf_counter()
    for _ in range(repeats):
        operation()
    return {"us": 1e6 * (time.perf_counter() - start) / repeats}


def _arguments(params: SamplingParams, seen: torch.Tensor) -> Sampling:
    def whole(value: int) -> torch.Tensor:
        return torch.tensor([value])

    def number(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.float64)

    return Sampling(
        sequences=whole(0),
        positions=whole(0),
        seeds=whole(1),
        temperature=number(params.temperature),
        top_k=whole(params.top_k),
        top_p=number(params.top_p),
        min_p=number(params.min_p),
        repetition=number(params.repetition_penalty),
        presence=number(params.presence_penalty),
        frequency=number(params.frequency_penalty),
        probabilistic=torch.tensor([False]),
        history_ids=seen,
        history_counts=torch.ones_like(seen),
        history_ends=whole(_SEEN),
        bias_ids=torch.zeros(0, dtype=torch.int64),
        biases=torch.zeros(0, dtype=torch.float64),
        bias_ends=whole(0),
    )
