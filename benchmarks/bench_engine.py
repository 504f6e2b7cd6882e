"""The K7 engine without its thread: a batch is prefilled, then stepped to its end, and every part is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.forced import TeacherForced
from heptagram_backend.checkpoint import resolve
from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.drafts.dspark.drafter import load as load_drafter
from heptagram_backend.engine_api import Sink
from heptagram_backend.engines.parts import Parts, Vocabulary, make_parts
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import DraftSource, GenerationRequest
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.plan import Draft, Planner
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.sequence import State
from heptagram_backend.targets import load_target
from heptagram_backend.targets.base import Target
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_kernels.layout import K7_LAYOUT, ROWS
from heptagram_wire.events import Event

MODEL: Final = "embedded:smollm2-135m-instruct"


@dataclass(slots=True)
class Measured:
    """One batch. Times in seconds. ``histogram[n]`` counts the steps with ``n`` accepted drafts; ``tokens`` holds what
    each sequence generated, the stop token left out."""

    prefill_s: float = 0.0
    decode_s: float = 0.0
    decode_cpu_s: float = 0.0
    plan_s: float = 0.0
    steps: int = 0
    rows: int = 0  # sequences, summed over steps
    generated: int = 0
    mask_bytes: int = 0
    masked_rows: int = 0
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(ROWS, dtype=np.int64))
    tokens: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, other: Measured) -> None:
        """Take another batch's costs in; its tokens are not kept."""
        for spec in fields(self):
            if spec.name != "tokens":
                setattr(self, spec.name, getattr(self, spec.name) + getattr(other, spec.name))

    def numbers(self) -> dict[str, float]:
        """What tables are made of."""
        return {
            "tokens_per_s": self.generated / self.decode_s,
            "ms_per_token": 1e3 * self.decode_s / self.generated,
            "cpu_ms_per_token": 1e3 * self.decode_cpu_s / self.generated,
            "step_ms": 1e3 * self.decode_s / self.steps,
            "plan_ms_per_step": 1e3 * self.plan_s / self.steps,
            "tokens_per_step": self.generated / self.rows,
            "mask_bytes_per_step": self.mask_bytes / self.steps,
            "masked_rows_per_step": self.masked_rows / self.steps,
            "mask_bytes": float(self.mask_bytes),
            "generated": float(self.generated),
            "prefill_s": self.prefill_s,
            **{f"accepted_{place}": float(self.histogram[place:].sum() / self.rows) for place in range(1, ROWS)},
        }


class _Silent:
    def send(self, events: Sequence[Event], *, final: bool) -> None: ...

    def fail(self, error: HeptagramError) -> None: ...


class _TimedPlanner:
    def __init__(self, inner: Planner) -> None:
        self._inner = inner
        self.seconds = 0.0

    def draft(self, sequence: Running) -> Draft:
        return self._timed(self._inner.draft, sequence)

    def mask(self, sequence: Running, draft: Draft) -> Draft:
        return self._timed(self._inner.mask, sequence, draft)

    def _timed(self, plan: Callable[..., Draft], *arguments: Any) -> Draft:
        start = time.perf_counter()
        try:
            return plan(*arguments)
        finally:
            self.seconds += time.perf_counter() - start


class BenchEngine:
    """One embedded model, loaded once, with a DSpark drafter if ``drafter`` names its folder. Not thread-safe."""

    def __init__(self, *, threads: int = 1, max_model_len: int = 2048, drafter: Path | None = None) -> None:
        folder = resolve(MODEL)
        named = None if drafter is None else str(drafter.absolute())
        options = EngineOptions(threads=threads, max_model_len=max_model_len, drafter=named)
        release = Release("bench", str(folder), "chatml_json", k7_layout=K7_LAYOUT.describe(), engine=options)
        self.preprocessor = Preprocessor(release, folder)
        self._folder, self._options, self.threads = folder, options, threads
        self.model = load_target(options, folder)
        self.target = TeacherForced(self.model)
        dspark = load_drafter(options, folder, self.model)
        self._policy = partial(draft_policy, dspark=dspark.make if dspark else None)
        self.parts = self.parts_over(self.target)
        self._planner = _TimedPlanner(self.parts.step._planner)
        self.parts.step._planner = self._planner  # type: ignore[assignment]

    def run(self, requests: Sequence[GenerationRequest], scripts: Sequence[Sequence[int]] = ()) -> Measured:
        """Run ``requests`` as one batch; with ``scripts``, each is made to generate these tokens and to end there."""
        self.target.unteach()
        for slot, script in enumerate(scripts):
            self.target.teach(slot, [*requests[slot].prompt_ids, *script])
        measured = Measured()
        start = time.perf_counter()
        running = [self._prefilled(request, slot) for slot, request in enumerate(requests)]
        measured.prefill_s = time.perf_counter() - start
        planned, cpu, start = self._planner.seconds, time.process_time(), time.perf_counter()
        live = running
        while live:
            outcomes = self.parts.step.run(live)
            measured.steps += 1
            measured.rows += len(live)
            for outcome in outcomes:
                if outcome.error is not None:
                    raise outcome.error
                outcome.sequence.read()
            live = [outcome.sequence for outcome in outcomes if outcome.reason is None]
        measured.decode_s = time.perf_counter() - start
        measured.decode_cpu_s = time.process_time() - cpu
        measured.plan_s = self._planner.seconds - planned
        for sequence in running:
            stats = sequence.stats
            measured.generated += stats.generated
            measured.mask_bytes += stats.mask_bytes
            measured.masked_rows += stats.masked_rows
            measured.histogram += stats.histogram
            measured.tokens.append(tuple(sequence.tokens[sequence.prompt_tokens :]))
            sequence.release_grammar()
        return measured

    def parts_over(self, target: Target, **changes: Any) -> Parts:
        """Parts of another engine for the same model, with the same options but for ``changes``."""
        return _parts(self._folder, target, replace(self._options, **changes), self._policy)

    def close(self) -> None:
        self.parts.grammars.close()

    def _prefilled(self, request: GenerationRequest, slot: int) -> Running:
        sink: Sink = _Silent()
        sequence = self.parts.make_sequence(f"{slot}", request, sink)
        sequence.move(State.PREFILLING)
        sequence.slot = slot
        while size := min(self.target.prefill_chunk, sequence.prefill_left):
            chunk = sequence.tokens[sequence.cached : sequence.cached + size]
            self.target.prefill(slot=slot, start=sequence.cached, token_ids=chunk)
            sequence.cached += size
        sequence.move(State.DECODING)
        if request.constraint is not None:
            sequence.grammar = self.parts.grammars.start(request.constraint).result()
        return sequence


def _parts(folder: Path, target: Target, options: EngineOptions, policy: Callable[[DraftSource], DraftPolicy]) -> Parts:
    tokenizer = CheckpointTokenizer(folder)
    pieces = tokenizer.token_bytes()
    return make_parts(
        target=target,
        vocabulary=Vocabulary(pieces, tokenizer.encode, frozenset(tokenizer.eos_ids), tokenizer.vocabulary_hash),
        factory=load_grammar_factory(pieces, vocab_width=target.vocab_size, stop_token_ids=tokenizer.eos_ids),
        options=options,
        policy=policy,
    )
