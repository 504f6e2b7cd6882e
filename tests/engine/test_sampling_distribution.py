"""What the engine draws has the exact distribution: free and under a grammar, without drafts and with seven.

Under both methods of verifying drafts: equal to what the seed draws anyway, and accepted with their probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engines.parts import Parts
from heptagram_backend.generation import GenerationRequest, OutputSpec, SamplingParams, TokenBias
from heptagram_backend.release import EngineOptions
from heptagram_backend.sampling import RejectionSampleMethod
from heptagram_backend.targets.scripted import ScriptedTarget
from tests.engine.harness import EOS, drive, tiny_encode, tiny_parts
from tests.kernels.sampling_cases import Draws, exact, p_value

LETTERS = [ord(letter) for letter in "abcde"]
WIDTH = 288


def logits_behind(token: int) -> NDArray[np.float32]:
    """Random, but small outside the five letters: nothing else is drawn once their bias is there."""
    random = np.random.default_rng(token)
    logits = np.full(WIDTH, -50.0, dtype=np.float32)
    logits[LETTERS] = random.normal(size=len(LETTERS), scale=1.2)
    logits[[ord("x"), ord("y"), ord("z"), EOS]] = random.normal(size=4)
    return logits


class Chain(ScriptedTarget):
    """A Markov chain: the logits depend on the last token."""

    def __init__(self) -> None:
        super().__init__(lambda tokens: 0, vocab_size=WIDTH, num_slots=8, max_model_len=320)
        self._tables = [torch.from_numpy(logits_behind(token)) for token in range(WIDTH)]

    def write(self, row: Tensor, context: tuple[int, ...]) -> None:
        row.copy_(self._tables[context[-1]])


def likely(tokens: Sequence[int], limit: int) -> list[int]:
    """Drafts of the likeliest letters: right often enough that all lengths of accepted drafts happen."""
    drafts: list[int] = []
    for _ in range(limit):
        logits = logits_behind(drafts[-1] if drafts else tokens[-1])
        drafts.append(LETTERS[int(logits[LETTERS].argmax())])
    return drafts


@dataclass(frozen=True, slots=True)
class Method:
    name: RejectionSampleMethod
    parts: Parts

    def run(self, requests: Sequence[GenerationRequest]) -> list[tuple[int, ...]]:
        """The tokens of each with seven drafts, in batches of eight, and the same again; ``strict``: without any."""
        count = 0 if self.name == "strict" else 7
        answers: list[tuple[int, ...]] = []
        for start in range(0, len(requests), 8):
            batch = requests[start : start + 8]
            drafted = drive(self.parts, batch)
            assert drafted[::-1] == drive(
                self.parts, [replace(one, num_speculative_tokens=count) for one in reversed(batch)]
            )
            answers += [result.tokens for result in drafted]
        return answers


@pytest.fixture(scope="module", params=["strict", "probabilistic"])
def method(request: pytest.FixtureRequest) -> Iterator[Method]:
    options = EngineOptions(mask_pool_rows=128, rejection_sample_method=request.param)
    made = tiny_parts(Chain(), scripts={"scripted": likely}, options=options)
    yield Method(request.param, made)
    made.grammars.close()


def _requests(count: int, sampling: SamplingParams, **changes: Any) -> list[GenerationRequest]:
    base = GenerationRequest(
        tuple(tiny_encode("aab")), OutputSpec("chatml_json"), "tiny", max_tokens=2, drafts="scripted"
    )
    return [replace(base, sampling=replace(sampling, seed=seed), **changes) for seed in range(count)]


ONLY_LETTERS = tuple(TokenBias(token, -100.0) for token in (*b"xyz", EOS))


def test_a_long_answer_walks_the_chain(method: Method) -> None:
    requests = _requests(8, SamplingParams(temperature=1.3, logit_bias=ONLY_LETTERS), max_tokens=300)
    counts = np.zeros((5, 5), dtype=np.int64)
    for tokens in method.run(requests):
        places = [LETTERS.index(token) for token in tokens]
        np.add.at(counts, (places[:-1], places[1:]), 1)
    for place, letter in enumerate(LETTERS):
        logits = logits_behind(letter)[LETTERS].tolist()
        assert p_value(counts[place], exact(logits, Draws(temperature=1.3))) > 0.001


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.5, top_k=3),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=2.0, min_p=0.3),
        SamplingParams(temperature=1.4, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.7),
        SamplingParams(temperature=1.4, top_p=0.95, frequency_penalty=-0.8),
    ],
    ids=["plain", "top_k", "top_p", "min_p", "penalties", "rewards"],
)
def test_two_tokens_have_their_joint_distribution(method: Method, sampling: SamplingParams) -> None:
    """The second one's penalties count the first, a draft of the same step or not."""
    sampling = replace(sampling, logit_bias=ONLY_LETTERS)
    answers = method.run(_requests(600, sampling))
    counts = np.zeros((5, 5), dtype=np.int64)
    for first, second in answers:
        counts[LETTERS.index(first), LETTERS.index(second)] += 1
    expected = _joint(sampling)
    assert not counts[expected == 0].any()
    rare = expected * len(answers) < 5
    rest = [counts[rare].sum()], [expected[rare].sum()]
    if expected[rare].sum() * len(answers) < 5:
        rest = [], []
    lumped = np.append(counts[~rare], rest[0]).astype(np.int64), np.append(expected[~rare], rest[1])
    assert p_value(lumped[0], lumped[1] / lumped[1].sum()) > 0.001


def _joint(sampling: SamplingParams) -> NDArray[np.float64]:
    draws = Draws(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition=sampling.repetition_penalty,
        presence=sampling.presence_penalty,
        frequency=sampling.frequency_penalty,
        history={0: 0, 1: 0},  # the prompt "aab"
    )
    joint = np.zeros((5, 5))
    first = exact(logits_behind(ord("b"))[LETTERS].tolist(), draws)
    for place, chance in enumerate(first):
        history = {**draws.history, place: 1}
        logits = logits_behind(LETTERS[place])[LETTERS].tolist()
        joint[place] = chance * exact(logits, replace(draws, history=history))
    return joint


def test_a_grammar_cuts_the_distribution_and_changes_nothing_else(method: Method) -> None:
    """Pairs of one of a, b, d and one of x, y, z; behind each pair the answer may end."""
    spec = ConstraintSpec("ebnf", "root ::= ([abd] [xyz])+")
    first, second = [ord(letter) for letter in "abd"], [ord(letter) for letter in "xyz"]
    after: dict[int, list[int]] = {-1: first} | dict.fromkeys(first, second) | {last: [*first, EOS] for last in second}
    counts = {last: np.zeros(len(allowed), dtype=np.int64) for last, allowed in after.items()}
    for tokens in method.run(_requests(300, SamplingParams(temperature=1.2), constraint=spec, max_tokens=9)):
        ended = tokens if len(tokens) == 9 else (*tokens, EOS)
        for last, token in zip((-1, *ended[:-1]), ended, strict=True):
            counts[last][after[last].index(token)] += 1
    for last, table in counts.items():
        logits = logits_behind(last if last >= 0 else ord("b"))[after[last]].tolist()
        assert p_value(table, exact(logits, Draws(temperature=1.2))) > 0.001


def test_only_strict_ties_a_seed_to_its_answer_whatever_is_drafted(method: Method) -> None:
    requests = _requests(8, SamplingParams(temperature=1.3, logit_bias=ONLY_LETTERS), max_tokens=60)
    answers = {
        tuple(drive(method.parts, [replace(one, num_speculative_tokens=count) for one in requests])) for count in (0, 7)
    }
    assert (len(answers) == 1) is (method.name == "strict")
