"""Contract: the same request gives the same tokens whatever runs beside it, and with any drafts.

The whole grid on a tiny random model: every draft source, an adversarial one included, every batch size from 1 to 8,
every draft count from 0 to 7; against a loop of our own that knows nothing of the engine, and against transformers'
plain one-row decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xgrammar
from transformers import LlamaForCausalLM

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engines.parts import Parts
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.step import Outcome
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.engine.harness import EOS, Result, drive, tiny_checkpoint, tiny_encode, tiny_factory, tiny_parts

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
    return [_masked_argmax(parts, request) for request in _requests()]


def _masked_argmax(parts: Parts, request: GenerationRequest) -> Result:
    """The independent reference: one token a forward, seven dead rows, XGrammar asked directly, argmax by numpy."""
    target, tokens = parts.target, list(request.prompt_ids)
    for start in range(0, len(tokens) - 1, target.prefill_chunk):
        target.prefill(
            slot=0, start=start, token_ids=tokens[start : min(start + target.prefill_chunk, len(tokens) - 1)]
        )
    grammar = tiny_factory(target.vocab_size).matcher(request.constraint) if request.constraint else None
    while len(tokens) - len(request.prompt_ids) < request.max_tokens:
        rows = torch.tensor([[tokens[-1], *[7] * 7]])
        logits = target.forward(rows, torch.tensor([len(tokens) - 1]), torch.tensor([0]))[0, 0].float().numpy().copy()
        allowed = np.ones(len(logits), dtype=bool)
        allowed[EOS + 1 :] = False
        if grammar is not None:
            packed = np.zeros(-(-len(logits) // 32), dtype=np.int32)
            if grammar.fill(packed):
                allowed &= np.unpackbits(packed.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
        logits[~allowed] = -np.inf
        token = int(logits.argmax())
        if token == EOS and not request.ignore_eos:
            return Result(tuple(tokens[len(request.prompt_ids) :]), "stop")
        if grammar is not None:
            assert grammar.accept(token)
        tokens.append(token)
    return Result(tuple(tokens[len(request.prompt_ids) :]), "length")


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
    """Against a one-row cached loop of transformers and XGrammar: equal within tolerance, and the same token wherever
    the margin is larger than that."""
    folder = tiny_checkpoint(tmp_path)
    target = TransformersTarget(folder, dtype="float32", num_slots=8, max_model_len=640)
    parts = tiny_parts(target)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    compared = 0
    for request in _requests():
        tokens = list(request.prompt_ids) + list(drive(parts, [replace(request, drafts="auto")])[0].tokens)
        factory = tiny_factory(target.vocab_size)
        grammar = factory.matcher(request.constraint) if request.constraint else None
        cache = None
        for place in range(len(tokens) - 1):
            with torch.inference_mode():
                output = model(input_ids=torch.tensor([[tokens[place]]]), cache=cache, use_cache=True)
            cache = output.cache
            if place < len(request.prompt_ids) - 1:
                continue
            row = output.logits[0, -1].float().clone()
            row[EOS + 1 :] = -torch.inf
            if grammar is not None:
                packed = torch.zeros((1, -(-len(row) // 32)), dtype=torch.int32)
                if grammar.fill(packed[0].numpy()):
                    xgrammar.apply_token_bitmask_inplace(row.unsqueeze(0), packed)
                assert grammar.accept(tokens[place + 1])
            best = row.topk(2).values
            if float(best[0] - best[1]) > 1e-3:
                assert int(row.argmax()) == tokens[place + 1]
                compared += 1
    assert compared > 60
    parts.grammars.close()
