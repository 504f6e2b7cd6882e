"""Preprocessor and engine in one process, and the run of many cases through them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heptagram_backend.checkpoint import resolve
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines import k7
from heptagram_backend.engines.parts import Vocabulary, assemble, make_parts
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_kernels.layout import K7_LAYOUT
from heptagram_wire import errors as codes
from heptagram_wire.requests import encode_request
from tests.conformance.adversary import Adversary, pull_of, random_target
from tests.conformance.cases import Case
from tests.conformance.verdict import Refusal, Tally, judge
from tests.engine.harness import Collector

SLOTS: Final = 8
_IN_FLIGHT: Final = 16  # so that a slot never waits for the next request
_PATIENCE_S: Final = 600.0
_TOOL: Final = re.compile(r"tools\[(\d+)\]\.function\.parameters")


@dataclass(frozen=True, slots=True)
class Stack:
    """``max_tokens`` limits every answer."""

    preprocessor: Preprocessor
    engine: Engine
    max_tokens: int

    def run(self, cases: Iterable[Case], **fields: Any) -> Tally:
        """Ask every case with ``fields`` of the request too, eight at a time; afterwards nothing is held any more."""
        tally = Tally()
        running: deque[tuple[Case, Collector]] = deque()
        for case in cases:
            if (prepared := self._prepare(case, tally, fields)) is None:
                continue
            asked, request = prepared
            sink = Collector()
            self.engine.submit(request, sink)
            running.append((asked, sink))
            if len(running) == _IN_FLIGHT:
                _settle(*running.popleft(), tally)
        while running:
            _settle(*running.popleft(), tally)
        seen = self.engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers) == (0, 0, 0, 0)
        assert tally.violations or seen.requests_failed == seen.invalid_outputs == 0
        return tally

    def _prepare(self, case: Case, tally: Tally, fields: Mapping[str, Any]) -> tuple[Case, GenerationRequest] | None:
        """The plan of a case, without the tools that are refused. Each refusal must say where and why."""
        left: Case | None = case
        while left is not None:
            try:
                return left, self.preprocessor.prepare(encode_request({**left.request(self.max_tokens), **fields}))
            except RequestError as error:
                wire = error.wire
                place = _TOOL.fullmatch(wire.param or "")
                if wire.code != codes.UNSUPPORTED_SCHEMA or place is None or "#" not in wire.message:
                    raise
                index = int(place[1])
                tally.refusals.append(Refusal(left, left.tools[index]["function"]["name"], wire.message))
                left = left.without(index)
        tally.unasked += 1
        return None


def _settle(case: Case, sink: Collector, tally: Tally) -> None:
    assert sink.done.wait(_PATIENCE_S), f"{case.id}: no end"
    if sink.error is not None:
        raise AssertionError(f"{case.id} ({case.mode}): failed before start: {sink.error}") from sink.error
    tally.answers.append(judge(case, sink.events))


@contextmanager
def language_model(*, max_model_len: int, max_tokens: int) -> Iterator[Stack]:
    """The embedded SmolLM2, as it is served."""
    yield from _serve(max_model_len, max_tokens, lambda release, folder: k7.build(release, folder, "1"))


@contextmanager
def adversary(weights: Path, *, max_model_len: int, max_tokens: int, seed: int = 7) -> Iterator[Stack]:
    """The random model over SmolLM2's tokenizer; ``weights`` is an empty folder for it."""

    def build(release: Release, folder: Path) -> Engine:
        return _adversary(release, folder, weights, seed)

    yield from _serve(max_model_len, max_tokens, build)


def _serve(max_model_len: int, max_tokens: int, build: Callable[[Release, Path], Engine]) -> Iterator[Stack]:
    folder = resolve("embedded:smollm2-135m-instruct")
    options = EngineOptions(max_model_len=max_model_len, max_num_seqs=SLOTS)
    release = Release("conformance", str(folder), "chatml_json", k7_layout=K7_LAYOUT.describe(), engine=options)
    engine = build(release, folder)
    try:
        yield Stack(Preprocessor(release, folder), engine, max_tokens)
    finally:
        engine.close()


def _adversary(release: Release, tokenizer_folder: Path, weights: Path, seed: int) -> Engine:
    tokenizer = CheckpointTokenizer(tokenizer_folder)
    pieces, eos = tokenizer.token_bytes(), frozenset(tokenizer.eos_ids)
    options = release.engine
    inner = random_target(
        weights, vocab_size=len(pieces), num_slots=options.max_num_seqs, max_model_len=options.max_model_len
    )
    parts = make_parts(
        target=Adversary(inner, pull_of(pieces, eos), seed=seed),
        vocabulary=Vocabulary(pieces, tokenizer.encode, eos, tokenizer.vocabulary_hash),
        factory=load_grammar_factory(pieces, vocab_width=inner.vocab_size, stop_token_ids=tokenizer.eos_ids),
        options=options,
    )
    return assemble(
        parts, EngineLimits("1", options.max_queue_size, options.max_deadline_ms, tokenizer.vocabulary_hash)
    )
