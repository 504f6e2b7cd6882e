"""A tiny target, its answers, and drafters for it. Its grammar makes its answers regular enough to be learnt."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.drafts import draft_policy
from heptagram_backend.drafts.dspark.drafter import load
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import assemble, make_parts
from heptagram_backend.generation import GenerationRequest, OutputSpec, SamplingParams
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_backend.training.answers import Ask, recorded, write_answers
from heptagram_backend.training.drafter_data import Answer, AnswerSet, begin_set
from heptagram_backend.training.drafter_record import Recording
from heptagram_wire.events import Finish
from tests.engine.harness import Collector, tiny_encode, tiny_factory, tiny_vocabulary

TAPS = (-1, 0)
SCHEMA = """{"type": "object", "properties": {"name": {"enum": ["the tool", "that tool", "tooth"]},
"arguments": {"type": "object", "properties": {"name": {"type": "boolean"}, "the": {"type": "boolean"}},
"required": ["name", "the"], "additionalProperties": false}},
"required": ["name", "arguments"], "additionalProperties": false}"""


def tiny_target(checkpoint: Path) -> TransformersTarget:
    return TransformersTarget(checkpoint, dtype="float32", num_slots=4, max_model_len=128, block_size=8)


def tiny_asks(count: int) -> list[Ask]:
    """Words in any order, a quarter of them held out; every sixth answer is sampled."""
    dice = random.Random(5)
    words = [
        " ".join(dice.choice(("the", "tool", "name", "that")) for _ in range(dice.randint(2, 6))) for _ in range(count)
    ]
    return [Ask("tool", f"{place}", {"text": text, "place": place}, place % 4 == 0) for place, text in enumerate(words)]


def tiny_request(number: int, ask: Ask) -> GenerationRequest:
    sampling = SamplingParams(temperature=1.0, seed=number) if number % 6 == 5 else SamplingParams()
    constraint = ConstraintSpec("json_schema", SCHEMA)
    prompt = tuple(tiny_encode(ask.request["text"]))
    return recorded(GenerationRequest(prompt, OutputSpec("chatml_json"), "tiny", 72, constraint, sampling=sampling))


def answered(checkpoint: Path, folder: Path, count: int) -> list[Answer]:
    """The tiny target's answers, in ``folder``."""
    target = tiny_target(checkpoint)
    recording = Recording(target, TAPS)
    parts = make_parts(
        target=target,
        vocabulary=tiny_vocabulary(),
        factory=tiny_factory(target.vocab_size),
        options=EngineOptions(dtype="float32", max_num_seqs=4, mask_pool_rows=128),
        policy=recording.policy,
    )
    engine = assemble(parts, EngineLimits("1", 16, 60_000, "tiny"))
    begin_set(folder, {"target_layer_ids": list(TAPS)})
    try:
        list(write_answers(engine, recording, tiny_asks(count), tiny_request, folder, at_once=8))
    finally:
        engine.close()
    return list(AnswerSet.open(folder).read())


def served(checkpoint: Path, drafter: Path, asks: list[Ask]) -> tuple[float, list[list[int]]]:
    """Tokens a step, and the tokens, of greedy answers that the engine gives with a drafter alone."""
    options = EngineOptions(dtype="float32", max_num_seqs=4, mask_pool_rows=128, drafter=str(drafter))
    target = tiny_target(checkpoint)
    model = load(options, checkpoint, target)
    assert model is not None
    parts = make_parts(
        target=target,
        vocabulary=tiny_vocabulary(),
        factory=tiny_factory(target.vocab_size),
        options=options,
        policy=partial(draft_policy, dspark=model.make),
    )
    engine = assemble(parts, EngineLimits("1", 64, 60_000, "tiny"))
    try:
        sinks = [Collector() for _ in asks]
        for ask, sink in zip(asks, sinks, strict=True):
            request = replace(tiny_request(0, ask), drafts="dspark", logprobs=None, return_token_ids=True)
            engine.submit(request, sink)
        for sink in sinks:
            assert sink.done.wait(60)
    finally:
        engine.close()
    ends = [sink.finish for sink in sinks]
    assert all(isinstance(end, Finish) for end in ends)
    steps = sum(end.stats.speculative_decoding.num_spec_steps for end in ends)
    return sum(end.usage.completion_tokens for end in ends) / steps, [sink.token_ids for sink in sinks]
