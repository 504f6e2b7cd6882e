"""One answer on the embedded model: a pairwise sample of draft source, batch size and draft count."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from heptagram_backend.checkpoint import resolve
from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.drafts.scripted import Scripted
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import Parts, Vocabulary, assemble, make_parts
from heptagram_backend.generation import DraftSource, GenerationRequest
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_backend.tokenizer import CheckpointTokenizer
from tests.engine.harness import Collector, Result, agrees_with_one_row_decoding, drive, masked_argmax

pytestmark = pytest.mark.server

SHIPPED = Release.load(Path(__file__).parents[2] / "model_repository" / "generate" / "1")
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer"}},
            "required": ["city", "unit", "days"],
            "additionalProperties": False,
        },
    },
}
TEXTS = ["Weather in Paris?", "Say hello to the world.", "How warm is Rome in June?", "Count: 1, 2, 3, 4, 5, 6,"]
# Every two values of (drafts, batch, K) meet at least where they matter: each source at small and full K and batch.
SAMPLE: list[tuple[DraftSource, int, int]] = [
    ("none", 1, 0),
    ("none", 4, 7),
    ("prompt_lookup", 1, 7),
    ("prompt_lookup", 3, 4),
    ("grammar_forced", 2, 7),
    ("grammar_forced", 4, 1),
    ("auto", 4, 7),
    ("auto", 1, 3),
    ("scripted", 3, 7),
    ("scripted", 4, 2),
]


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return resolve(SHIPPED.checkpoint)


@pytest.fixture(scope="module")
def vocabulary(checkpoint: Path) -> Vocabulary:
    tokenizer = CheckpointTokenizer(checkpoint)
    return Vocabulary(tokenizer.token_bytes(), tokenizer.encode, frozenset(tokenizer.eos_ids), "")


@pytest.fixture(scope="module")
def requests(checkpoint: Path) -> list[GenerationRequest]:
    prepare = Preprocessor(SHIPPED, checkpoint).prepare
    made = []
    for place, text in enumerate(TEXTS):
        body: dict[str, object] = {"messages": [{"role": "user", "content": text}], "max_tokens": 20}
        if place % 2 == 0:
            body |= {"tools": [TOOL], "tool_choice": "required"}
        made.append(prepare(json.dumps(body)))
    return made


def _parts(checkpoint: Path, vocabulary: Vocabulary, dtype: str) -> Parts:
    target = TransformersTarget(checkpoint, dtype=dtype, num_slots=4, max_model_len=512)

    def policy(name: DraftSource) -> DraftPolicy:
        hostile = DraftPolicy(
            lambda: Scripted(lambda tokens, limit: [tokens[-1], 2, 0, 17, 49151, 28, 2][:limit]), forced=False
        )
        return hostile if name == "scripted" else draft_policy(name)

    stops = sorted(vocabulary.eos_ids)
    factory = load_grammar_factory(vocabulary.token_bytes, vocab_width=target.vocab_size, stop_token_ids=stops)
    options = EngineOptions(mask_pool_rows=128)
    return make_parts(target=target, vocabulary=vocabulary, factory=factory, options=options, policy=policy)


def _adversary(tokens: Sequence[int], limit: int) -> list[int]:
    return [tokens[-1], 2, 0, 17, 49151, 28, 2][:limit]


@pytest.fixture(scope="module")
def parts(checkpoint: Path, vocabulary: Vocabulary) -> Iterator[Parts]:
    made = _parts(checkpoint, vocabulary, SHIPPED.engine.dtype)
    yield made
    made.grammars.close()


@pytest.fixture(scope="module")
def plain(parts: Parts, requests: list[GenerationRequest], vocabulary: Vocabulary) -> list[Result]:
    return [masked_argmax(parts.target, request, vocabulary) for request in requests]


@pytest.mark.parametrize(("drafts", "size", "count"), SAMPLE)
def test_speculation_and_company_change_nothing(
    parts: Parts, requests: list[GenerationRequest], plain: list[Result], drafts: DraftSource, size: int, count: int
) -> None:
    chosen = [(count + step) % len(requests) for step in range(size)]
    batch = [replace(requests[place], drafts=drafts, num_speculative_tokens=count) for place in chosen]
    assert drive(parts, batch) == [plain[place] for place in chosen]


def test_it_agrees_with_one_row_decoding(
    checkpoint: Path, requests: list[GenerationRequest], vocabulary: Vocabulary
) -> None:
    """In fp32: against transformers' own cache and attention, one row a forward, under XGrammar's mask."""
    parts = _parts(checkpoint, vocabulary, "float32")
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    compared = 0
    for request in requests[:2]:
        answer = drive(parts, [request])[0]
        compared += agrees_with_one_row_decoding(model, parts.target, request, answer, vocabulary, tolerance=2e-2)
    assert compared > 12
    parts.grammars.close()


@pytest.mark.timeout(600)
def test_preemption_and_shared_prefixes_change_nothing(
    checkpoint: Path, requests: list[GenerationRequest], plain: list[Result], vocabulary: Vocabulary
) -> None:
    """The engine itself, with blocks for little more than one sequence, and then the same prompts once more."""
    engine, answers = _engine(checkpoint, vocabulary, blocks=27), []
    for chosen in (requests, requests[:1], requests[:1]):
        sinks = [Collector() for _ in chosen]
        for request, sink in zip(chosen, sinks, strict=True):
            engine.submit(replace(request, return_token_ids=True), sink)
        assert all(sink.done.wait(500) for sink in sinks)
        answers += [tuple(sink.token_ids) for sink in sinks]
    seen = engine.snapshot()
    engine.close()
    expected = [*plain, plain[0], plain[0]]
    assert answers == [result.tokens for result in expected]
    assert seen.preemptions > 0
    assert seen.prefix_hit_tokens > 100


def _engine(checkpoint: Path, vocabulary: Vocabulary, *, blocks: int) -> K7Engine:
    options = EngineOptions(mask_pool_rows=128, max_num_seqs=4)
    target = TransformersTarget(
        checkpoint,
        dtype=SHIPPED.engine.dtype,
        num_slots=4,
        max_model_len=184,
        prefill_chunk=96,
        block_size=8,
        blocks=blocks,
    )
    stops = sorted(vocabulary.eos_ids)
    factory = load_grammar_factory(vocabulary.token_bytes, vocab_width=target.vocab_size, stop_token_ids=stops)
    parts = make_parts(target=target, vocabulary=vocabulary, factory=factory, options=options)
    return assemble(parts, EngineLimits("1", 16, 600_000, SHIPPED.vocabulary or ""))
