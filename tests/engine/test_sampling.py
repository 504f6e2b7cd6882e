"""Contract: a seed's answer is the same with and without drafts, alone and in company; greedy ones are untouched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Parts, assemble
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec, SamplingParams, TokenBias, Trigger
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_wire.events import ArgumentsDelta, ReasoningDelta, TextDelta, TokenLogprob
from tests.engine.harness import (
    EOS,
    Collector,
    Result,
    drive,
    log_softmaxes,
    masked_argmax,
    tiny_checkpoint,
    tiny_encode,
    tiny_parts,
    tiny_token_bytes,
    tiny_vocabulary,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"enum": ["tool", "the tool"]},
        "arguments": {"type": "array", "items": {"type": "boolean"}},
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
STRICT = ConstraintSpec("json_schema", json.dumps(SCHEMA))
CALL = ConstraintSpec("ebnf", 'root ::= "q" [a-f] [0-9] "!"')
WARM = SamplingParams(temperature=1.0, seed=1)


def _request(text: str, sampling: SamplingParams, **changes: Any) -> GenerationRequest:
    base = GenerationRequest(tuple(tiny_encode(text)), OutputSpec("chatml_json"), "tiny", max_tokens=14)
    return replace(base, sampling=sampling, **changes)


REQUESTS = [
    _request("a<b>c", WARM, ignore_eos=True),
    _request("th the th", replace(WARM, seed=2, temperature=0.6, top_k=40, top_p=0.9), ignore_eos=True),
    _request("arguments", replace(WARM, seed=3, frequency_penalty=1.5, presence_penalty=0.5, min_p=0.001)),
    _request("x", replace(WARM, seed=4, temperature=1.5), constraint=STRICT),
    _request("the tool", replace(WARM, seed=5, repetition_penalty=1.8), constraint=STRICT),
    _request("0 1 2", SamplingParams(repetition_penalty=1.3, presence_penalty=1.0), ignore_eos=True),
    _request("q a", replace(WARM, seed=6, logit_bias=(TokenBias(ord("q"), 9),)), trigger=Trigger("q", CALL)),
    _request("tell the tool name", SamplingParams(), ignore_eos=True),
]
GREEDY = len(REQUESTS) - 1


def _adversary(tokens: Sequence[int], limit: int) -> list[int]:
    choices = (EOS, EOS - 1, 280, tokens[-1], (tokens[-1] * 31 + len(tokens)) % 256, 34)
    return [choices[(len(tokens) + step) % len(choices)] for step in range(limit)]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    target = TransformersTarget(folder, dtype="bfloat16", num_slots=8, max_model_len=640)
    made = tiny_parts(target, scripts={"scripted": _adversary})
    yield made
    made.grammars.close()


@pytest.fixture(scope="module")
def plain(parts: Parts) -> list[Result]:
    """Alone, one token a step."""
    return [drive(parts, [replace(one, num_speculative_tokens=0, drafts="none")])[0] for one in REQUESTS]


@pytest.mark.parametrize("drafts", ["none", "prompt_lookup", "grammar_forced", "auto", "scripted"])
def test_no_drafter_no_batch_size_and_no_draft_count_changes_a_token(
    parts: Parts, plain: list[Result], drafts: DraftSource
) -> None:
    for count in (0, 1, 4, 7):
        for size in (1, 3, 8):
            first = (count + 3 * size) % 8
            chosen = [(first + step) % 8 for step in range(size)]
            batch = [replace(REQUESTS[place], drafts=drafts, num_speculative_tokens=count) for place in chosen]
            slots = [(5 * count + step) % 8 for step in range(size)]
            assert drive(parts, batch, slots) == [plain[place] for place in chosen], f"K {count}, batch {size}"
    assert parts.grammars.live == 0


def test_the_grid_says_something(parts: Parts, plain: list[Result]) -> None:
    """Sampled answers are not the greedy ones, the trigger's call was opened, and right drafts are accepted."""
    for request, result in zip(REQUESTS[:-1], plain[:-1], strict=True):
        if request.constraint is None:
            assert drive(parts, [replace(request, sampling=SamplingParams())])[0] != result
    assert any(token == ord("!") for token in plain[6].tokens)
    answer = plain[0].tokens
    steps = 0

    def right(tokens: Sequence[int], limit: int) -> Sequence[int]:
        nonlocal steps
        steps += 1
        return answer[len(tokens) - len(REQUESTS[0].prompt_ids) :][:limit]

    oracle = tiny_parts(parts.target, scripts={"scripted": right})
    assert drive(oracle, [replace(REQUESTS[0], drafts="scripted")]) == [plain[0]]
    assert steps == 2  # of 14 tokens
    oracle.grammars.close()


def test_a_greedy_request_beside_sampling_ones_is_what_it_was(parts: Parts, plain: list[Result]) -> None:
    assert plain[GREEDY] == masked_argmax(parts.target, REQUESTS[GREEDY], tiny_vocabulary())


def test_a_greedy_step_calls_no_operation_of_the_sampler(
    parts: Parts, plain: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(**arguments: object) -> None:
        raise AssertionError("a greedy step must pay nothing")

    program = parts.step._inputs._program
    monkeypatch.setattr(program, "_device", replace(program._device, verify_sampled=called))
    monkeypatch.setattr(parts.step._sampler, "_logprobs", called)
    assert drive(parts, [REQUESTS[GREEDY]]) == [plain[GREEDY]]
    with pytest.raises(AssertionError, match="must pay nothing"):
        drive(parts, [REQUESTS[0]])


def test_what_cannot_change_the_likeliest_leaves_the_greedy_answer(parts: Parts, plain: list[Result]) -> None:
    """Sampling among one candidate, and a nearly cold draw, go another way through the step and end at the same."""
    for sampling in (
        SamplingParams(temperature=2.0, top_k=1, seed=5),
        SamplingParams(temperature=1.0, top_p=1e-9, seed=5),
        SamplingParams(temperature=1e-6, seed=5),
        SamplingParams(logit_bias=(TokenBias(0, 0.0),)),
    ):
        assert drive(parts, [replace(REQUESTS[GREEDY], sampling=sampling)]) == [plain[GREEDY]]


def test_seeds_differ_and_are_taken_modulo_2_to_the_64(parts: Parts, plain: list[Result]) -> None:
    answers = {drive(parts, [replace(REQUESTS[0], sampling=replace(WARM, seed=seed))])[0].tokens for seed in range(6)}
    assert len(answers) == 6
    same = [replace(REQUESTS[0], sampling=replace(WARM, seed=seed)) for seed in (-1, 2**64 - 1)]
    assert len({result.tokens for result in drive(parts, same)}) == 1


@pytest.mark.parametrize("count", [0, 7])
def test_biases_of_a_hundred_ban_and_force(parts: Parts, plain: list[Result], count: int) -> None:
    drawn = set(plain[0].tokens)
    banned = replace(WARM, logit_bias=tuple(TokenBias(token, -100) for token in drawn))
    [without] = drive(parts, [replace(REQUESTS[0], sampling=banned, num_speculative_tokens=count)])
    assert not drawn & set(without.tokens)
    forced = replace(WARM, logit_bias=(TokenBias(ord("z"), 100),))
    [only] = drive(parts, [replace(REQUESTS[0], sampling=forced, num_speculative_tokens=count)])
    assert set(only.tokens) == {ord("z")}


def test_a_strict_answer_is_valid_at_any_temperature(parts: Parts) -> None:
    requests = [
        replace(REQUESTS[3], sampling=replace(WARM, temperature=1.5, seed=seed), max_tokens=90) for seed in range(40)
    ]
    finished = set()
    for start in range(0, 40, 8):
        for result in drive(parts, requests[start : start + 8]):
            if result.reason == "stop":
                text = b"".join(tiny_token_bytes()[token] or b"" for token in result.tokens).decode()
                jsonschema.validate(json.loads(text), SCHEMA)
                finished.add(text)
    assert len(finished) > 7


def _served(parts: Parts, request: GenerationRequest) -> Collector:
    engine = assemble(parts, EngineLimits("1", 8, 60_000, "tiny"))
    sink = Collector()
    try:
        engine.submit(request, sink)
        assert sink.done.wait(30)
    finally:
        engine.close()
    return sink


def _entries(sink: Collector) -> list[TokenLogprob]:
    deltas = [event for event in sink.events if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta)]
    return [entry for delta in deltas for entry in delta.logprobs or ()]


@pytest.fixture
def fresh(tmp_path: Path) -> Parts:
    """Parts for one engine, which closes them."""
    return tiny_parts(TransformersTarget(tiny_checkpoint(tmp_path), dtype="bfloat16", num_slots=8, max_model_len=640))


@pytest.mark.parametrize("place", [0, 2, 3, GREEDY], ids=["warm", "penalties", "strict", "greedy"])
def test_logprobs_are_those_of_a_log_softmax_over_what_is_allowed(fresh: Parts, parts: Parts, place: int) -> None:
    request = replace(REQUESTS[place], logprobs=3, return_token_ids=True)
    sink = _served(fresh, request)
    entries = _entries(sink)
    [result] = drive(parts, [REQUESTS[place]])
    assert [entry.token_id for entry in entries] == list(result.tokens)
    expected = log_softmaxes(parts.target, request, result.tokens, tiny_vocabulary())
    for entry, logprobs in zip(entries, expected, strict=True):
        assert entry.logprob == pytest.approx(logprobs[entry.token_id], abs=1e-9)
        best = np.lexsort((np.arange(logprobs.size), -logprobs))[:3]
        best = best[logprobs[best] > -np.inf]
        assert [top.token_id for top in entry.top_logprobs] == best.tolist()
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(logprobs[best].tolist(), abs=1e-9)
        raw = tiny_token_bytes()[entry.token_id]
        assert entry.bytes == (tuple(raw) if raw else None)
        assert entry.token == (raw or b"").decode(errors="replace")


def test_only_those_who_ask_get_logprobs_and_a_made_up_seed_is_told(fresh: Parts) -> None:
    sink = _served(fresh, replace(REQUESTS[0], sampling=SamplingParams(temperature=1.0)))
    assert not _entries(sink)
    seed = sink.finish.stats.seed
    assert seed is not None
    assert 0 <= seed < 2**48


def test_a_told_seed_gives_the_answer_again(parts: Parts, tmp_path: Path) -> None:
    seeds: list[int | None] = []
    texts = []
    for sampling in (SamplingParams(temperature=1.0), None):
        target = TransformersTarget(tiny_checkpoint(tmp_path), dtype="bfloat16", num_slots=8, max_model_len=640)
        chosen = sampling or SamplingParams(temperature=1.0, seed=seeds[0])
        sink = _served(tiny_parts(target), replace(REQUESTS[0], sampling=chosen))
        seeds.append(sink.finish.stats.seed)
        texts.append(sink.text)
    assert seeds[0] == seeds[1]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sampling": SamplingParams(temperature=2.5)}, "`sampling.temperature` must be from 0 to 2"),
        ({"sampling": SamplingParams(top_p=0.0)}, "`sampling.top_p` must be above 0 and at most 1"),
        ({"sampling": SamplingParams(top_k=-1)}, "`sampling.top_k` must be from 0 to 2147483647"),
        ({"sampling": SamplingParams(top_k=2**64)}, "`sampling.top_k` must be from 0 to 2147483647"),
        ({"sampling": SamplingParams(seed=2**64)}, "`sampling.seed` must be from -9223372036854775808"),
        ({"sampling": SamplingParams(logit_bias=(TokenBias(288, 1.0),))}, "must hold tokens below 271"),
        ({"sampling": SamplingParams(logit_bias=(TokenBias(1, 101.0),))}, "biases from -100 to 100"),
        ({"sampling": SamplingParams(logit_bias=(TokenBias(1, 1.0), TokenBias(1, 2.0)))}, "none twice"),
        ({"logprobs": 21}, "`logprobs` must be from 0 to 20"),
    ],
)
def test_a_plan_of_no_preprocess_is_refused(parts: Parts, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match="not a plan") as caught:
        parts.make_sequence("1", replace(REQUESTS[0], **changes), Collector())
    assert told in str(caught.value)
    assert caught.value.wire.param == "plan"
