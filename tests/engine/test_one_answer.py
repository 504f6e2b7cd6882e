"""Contract: the same request gives the same tokens whatever runs beside it, and with any drafts.

The whole grid on a tiny random model: every draft source, an adversarial one included, every batch size from 1 to 8,
every draft count from 0 to 7; against a loop of our own that knows nothing of the engine, and against transformers'
plain one-row decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Parts, assemble
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.step import Outcome
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.engine.harness import (
    EOS,
    Collector,
    Result,
    agrees_with_one_row_decoding,
    drive,
    masked_argmax,
    tiny_checkpoint,
    tiny_encode,
    tiny_parts,
    tiny_vocabulary,
)

SCHEMA = (
    '{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","properties":'
    '{"the ":{"type":"integer"},"th":{"enum":["tool","the tool"]}},"required":["the ","th"],'
    '"additionalProperties":false}},"required":["name","arguments"],"additionalProperties":false}'
)
OUTPUT = OutputSpec("chatml_json")
TEXTS = [
    "tell the tool name",
    "arguments",
    "th the th the th the",
    '{"name": "tool"}',
    "x",
    "the " * 90,
    "a<b>c",
    "0 1 2",
]


def _requests() -> list[GenerationRequest]:
    """Eight requests: constrained and free ones in turn, one free one that opens calls by the script of its prompt."""
    made = []
    for place, text in enumerate(TEXTS):
        constraint = ConstraintSpec("json_schema", SCHEMA) if place % 2 else None
        made.append(
            GenerationRequest(
                tuple(tiny_encode(text)),
                OUTPUT,
                "tiny",
                max_tokens=9 + place,
                constraint=constraint,
                ignore_eos=not place % 2,
            )
        )
    return made


def _adversary(tokens: Sequence[int], limit: int) -> list[int]:
    """Hostile drafts: stop tokens, control tokens, ids of the padding, repeats; never more than asked for."""
    choices = (EOS, EOS - 1, 280, tokens[-1], (tokens[-1] * 31 + len(tokens)) % 256, 34)
    return [choices[(len(tokens) + step) % len(choices)] for step in range(limit)]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    target = TransformersTarget(folder, dtype=request.param, num_slots=8, max_model_len=640)
    made = tiny_parts(target, scripts={"scripted": _adversary})
    yield made
    made.grammars.close()


@pytest.fixture(scope="module")
def plain(parts: Parts) -> list[Result]:
    return [masked_argmax(parts.target, request, tiny_vocabulary()) for request in _requests()]


@pytest.mark.parametrize("drafts", ["none", "prompt_lookup", "grammar_forced", "auto", "scripted"])
def test_no_drafter_no_batch_size_and_no_draft_count_changes_a_token(
    parts: Parts, plain: list[Result], drafts: DraftSource
) -> None:
    requests = [replace(request, drafts=drafts) for request in _requests()]
    for count in range(8):
        for size in range(1, 9):
            # Every request is in some batch of each size, in another slot and with other company each time.
            first = (count + 3 * size) % 8
            chosen = [(first + step) % 8 for step in range(size)]
            batch = [replace(requests[place], num_speculative_tokens=count) for place in chosen]
            slots = [(5 * count + step) % 8 for step in range(size)]
            assert drive(parts, batch, slots) == [plain[place] for place in chosen], f"K {count}, batch {size}"
    assert parts.grammars.live == 0


@pytest.mark.parametrize("drafts", ["none", "prompt_lookup", "grammar_forced", "auto", "scripted"])
def test_no_preemption_and_no_shared_prefix_changes_a_token(
    parts: Parts, tmp_path_factory: pytest.TempPathFactory, drafts: DraftSource
) -> None:
    """By the engine itself: blocks for little more than one sequence, and prompts that are found in the cache."""
    requests = [replace(request, max_tokens=request.max_tokens + 24, drafts=drafts) for request in _requests()]
    expected = [masked_argmax(parts.target, request, tiny_vocabulary()) for request in requests]
    assert isinstance(parts.target, TransformersTarget)
    dtype = "float32" if parts.target._dtype == torch.float32 else "bfloat16"
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    scarce = TransformersTarget(folder, dtype=dtype, num_slots=8, max_model_len=128, block_size=8, blocks=20)
    engine = assemble(tiny_parts(scarce, scripts={"scripted": _adversary}), EngineLimits("1", 64, 60_000, "tiny"))
    for chosen in (range(8), [5], [5]):
        sinks = [Collector() for _ in chosen]
        for place, sink in zip(chosen, sinks, strict=True):
            engine.submit(replace(requests[place], return_token_ids=True), sink)
        assert all(sink.done.wait(60) for sink in sinks)
        found = [Result(tuple(sink.token_ids), sink.finish.reason) for sink in sinks]
        assert found == [expected[place] for place in chosen]
    seen = engine.snapshot()
    assert seen.preemptions > 2
    assert seen.prefix_hit_tokens >= 88
    engine.close()


def test_the_grid_says_something(plain: list[Result]) -> None:
    """The answers are not all alike, some end by themselves, and the constrained ones are the start of a call."""
    assert len({result.tokens for result in plain}) == len(plain)
    assert any(len(set(result.tokens)) > 3 for result in plain)


def test_forced_text_makes_steps_fewer(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: dict[DraftSource, int] = {"none": 0, "grammar_forced": 0}
    run = parts.step.run
    for drafts in steps:

        def count(sequences: Sequence[Running], drafts: DraftSource = drafts) -> list[Outcome]:
            steps[drafts] += 1
            return run(sequences)

        monkeypatch.setattr(parts.step, "run", count)
        drive(parts, [replace(_requests()[3], drafts=drafts)])
    assert steps["grammar_forced"] < steps["none"] / 1.5


def test_the_logits_are_those_of_plain_transformers(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path)
    target = TransformersTarget(folder, dtype="float32", num_slots=8, max_model_len=640)
    parts = tiny_parts(target)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    compared = 0
    for request in _requests():
        answer = drive(parts, [request])[0]
        compared += agrees_with_one_row_decoding(model, target, request, answer, tiny_vocabulary(), tolerance=1e-3)
    assert compared > 60
    parts.grammars.close()
