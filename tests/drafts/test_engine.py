"""DSpark in the engine: no drafter changes a token, and its own cache is the same however it came about."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.drafts import draft_policy
from heptagram_backend.drafts.dspark.drafter import DSparkModel, load
from heptagram_backend.drafts.dspark.loading import load_network
from heptagram_backend.drafts.dspark.network import OwnContexts
from heptagram_backend.drafts.dspark.walk import walk
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Parts, assemble, make_parts
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import GenerationRequest, OutputSpec, SamplingParams
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.drafts.writing import GEMMA4, save_drafter
from tests.engine.harness import (
    Collector,
    Result,
    drive,
    masked_argmax,
    tiny_checkpoint,
    tiny_encode,
    tiny_factory,
    tiny_vocabulary,
)
from tests.engine.test_one_answer import SCHEMA, TEXTS

SOURCES = ("dspark", "dspark,grammar_forced", "auto")
KINDS: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "gated": {"markov_head_type": "gated", "block_size": 3},
    "rnn": {"markov_head_type": "rnn", "block_size": 9},
    "plain": {"markov_rank": 0, "enable_confidence_head": False},
    "gemma4": GEMMA4,
    "reduced": {"draft_vocab_size": 150},
}


def _requests() -> list[GenerationRequest]:
    """Constrained, free and sampled ones in turn."""
    made = []
    for place, text in enumerate(TEXTS):
        constraint = ConstraintSpec("json_schema", SCHEMA) if place % 2 else None
        sampling = SamplingParams(temperature=0.9, seed=place) if place % 3 == 2 else SamplingParams()
        prompt = tuple(tiny_encode(text))
        made.append(
            GenerationRequest(
                prompt,
                OutputSpec("chatml_json"),
                "tiny",
                30 + place,
                constraint,
                ignore_eos=constraint is None,
                sampling=sampling,
            )
        )
    return made


class Bench:
    """A tiny target with a random drafter. ``blocks`` sizes the cache."""

    def __init__(self, folder: Path, kind: str, *, dtype: str = "float32", blocks: int | None = None) -> None:
        checkpoint = tiny_checkpoint(folder / "target")
        self.options = EngineOptions(
            dtype=dtype, mask_pool_rows=128, drafter=str(save_drafter(folder / "drafter", **KINDS[kind]))
        )
        self.target = TransformersTarget(
            checkpoint,
            dtype=dtype,
            num_slots=8,
            max_model_len=640 if blocks is None else 128,
            block_size=8,
            blocks=blocks,
        )
        model = load(self.options, checkpoint, self.target)
        assert model is not None
        self.model: DSparkModel = model

    def parts(self) -> Parts:
        return make_parts(
            target=self.target,
            vocabulary=tiny_vocabulary(),
            factory=tiny_factory(self.target.vocab_size),
            options=self.options,
            policy=partial(draft_policy, dspark=self.model.make),
        )

    def cache(self, slot: int, rows: int) -> list[torch.Tensor]:
        index = self.target.rows(slot, 0, rows)
        return [tensor[index] for layer in self.model._layers for tensor in layer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dspark")


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[Result]:
    """Of the one target of all, without drafts; the greedy ones by a loop that knows nothing of the engine."""
    parts = Bench(folder / "plain", "vanilla").parts()
    undrafted = [replace(request, drafts="none") for request in _requests()]
    results = [drive(parts, [request])[0] for request in undrafted]
    for request, result in zip(undrafted, results, strict=True):
        if request.sampling.is_greedy:
            assert masked_argmax(parts.target, request, tiny_vocabulary()) == result
    parts.grammars.close()
    return results


@pytest.mark.parametrize(
    ("kind", "drafts"), [*(("vanilla", drafts) for drafts in SOURCES), *((kind, SOURCES[1]) for kind in [*KINDS][1:])]
)
def test_drafts_change_no_token(folder: Path, plain: list[Result], kind: str, drafts: str) -> None:
    parts = Bench(folder / f"{kind}-{drafts}", kind).parts()
    for count in (1, 7):
        batch = [replace(request, drafts=drafts, num_speculative_tokens=count) for request in _requests()]
        assert drive(parts, batch) == plain
        assert drive(parts, batch[2:5], [5, 0, 3]) == plain[2:5]
    parts.grammars.close()


@pytest.mark.parametrize(("kind", "blocks"), [("vanilla", 20), ("vanilla", 40), ("rnn", 20), ("gemma4", 40)])
def test_preemption_prefix_cache_and_cancels_change_no_token(
    plain: list[Result], folder: Path, kind: str, blocks: int
) -> None:
    scarce = Bench(folder / f"{kind}-{blocks}", kind, blocks=blocks).parts()
    engine = assemble(scarce, EngineLimits("1", 64, 60_000, "tiny"))
    requests = [r for r in _requests() if len(r.prompt_ids) + r.max_tokens < 120]
    expected = [result for result, r in zip(plain, _requests(), strict=True) if len(r.prompt_ids) + r.max_tokens < 120]
    try:
        for _ in range(2):  # the second time prompts are found in the cache
            sinks = [Collector() for _ in requests]
            for place, (request, sink) in enumerate(zip(requests, sinks, strict=True)):
                engine.submit(replace(request, drafts=SOURCES[place % len(SOURCES)], return_token_ids=True), sink)
                engine.cancel(engine.submit(replace(request, drafts="dspark", max_tokens=30), Collector()))
            for sink, result in zip(sinks, expected, strict=True):
                assert sink.done.wait(60)
                assert sink.error is None
                assert tuple(sink.token_ids) == result.tokens
        seen = engine.snapshot()
        assert (seen.preemptions if blocks == 20 else seen.prefix_hit_tokens) > 0
    finally:
        engine.close()


def test_its_cache_is_that_of_the_tokens_alone(folder: Path) -> None:
    """Written by chunks and by steps whose drafts were rejected, or by prompts in one: the same keys and values."""
    stepped, at_once = (Bench(folder / name, "vanilla") for name in ("stepped", "at_once"))
    parts = stepped.parts()
    request = replace(_requests()[0], drafts="dspark", max_tokens=40)
    [result] = drive(parts, [request])
    parts.grammars.close()
    tokens = [*request.prompt_ids, *result.tokens][:-1]
    for start in range(0, len(tokens), 64):
        at_once.target.prefill(slot=0, start=start, token_ids=tokens[start : start + 64])
    for ours, theirs in zip(stepped.cache(0, len(tokens)), at_once.cache(0, len(tokens)), strict=True):
        assert ours.abs().sum() > 0
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_batched_blocks_are_those_of_each_alone(folder: Path) -> None:
    bench = Bench(folder / "batched", "vanilla")
    texts = [tiny_encode(text) for text in ("tell the tool name", "a<b", "0 1 2")]
    for slot, tokens in enumerate(texts):
        bench.target.prefill(slot=slot, start=0, token_ids=tokens[:-1])

    def propose(slots: list[int]) -> list[list[int]]:
        drafters = [bench.model.make() for _ in slots]
        for slot, drafter in zip(slots, drafters, strict=True):
            drafter.extend(texts[slot])
            drafter.seat(slot)
        return [list(drafter.propose((), 7).tokens) for drafter in drafters]

    together = propose([0, 1, 2])
    assert together == [propose([slot])[0] for slot in range(3)]
    assert len({tuple(block) for block in together}) == 3


def test_a_target_that_shows_nothing_takes_no_drafter(tmp_path: Path) -> None:
    target = ScriptedTarget(lambda tokens: 0, vocab_size=288, num_slots=1, max_model_len=64)
    with pytest.raises(ReleaseError, match="shows no hidden states"):
        load(EngineOptions(drafter="x"), tmp_path, target)


def test_a_request_for_a_drafter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"engine\.drafter"):
        draft_policy("dspark")
    for name in ("dspark,dspark", "auto,dspark", "eagle", ""):
        with pytest.raises(ReleaseError, match="prompt_lookup, dspark, grammar_forced"):
            draft_policy(name)


@pytest.mark.parametrize("kind", ["vanilla", "gemma4", "reduced"])
def test_what_is_proposed_is_the_networks_block_over_the_targets_hidden_states(folder: Path, kind: str) -> None:
    """Against transformers' own hidden states of the whole text at once, after steps with rejected drafts."""
    bench = Bench(folder / f"hidden-{kind}", kind)
    parts = bench.parts()
    request = replace(_requests()[0], drafts="dspark")
    [result] = drive(parts, [request])
    parts.grammars.close()
    tokens = [*request.prompt_ids, *result.tokens]
    drafter = bench.model.make()
    drafter.extend(tokens)
    drafter.seat(0)
    proposed = list(drafter.propose((), 7).tokens)

    checkpoint = folder / f"hidden-{kind}" / "target"
    network = load_network(
        folder / f"hidden-{kind}" / "drafter", target=checkpoint, max_position=640, dtype=torch.float32
    )
    model = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    before = len(tokens) - 1
    with torch.inference_mode():
        shown = model(input_ids=torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states
        hidden = torch.cat([shown[layer + 1][0] for layer in network.config.target_layer_ids], dim=-1)
        contexts = [OwnContexts([layer]) for layer in network.context(hidden, torch.arange(before))]
        anchors = torch.tensor(tokens[-1:])
        block = network(anchors, torch.tensor([before]), contexts)
        assert proposed == walk(network, block, anchors).tokens[0].tolist()
