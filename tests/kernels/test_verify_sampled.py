"""Every device's sampling equals the plain-torch reference, and the reference draws the exact distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heptagram_kernels import cpu_sampling, torch_sampling
from heptagram_kernels import reference_sampling as reference
from heptagram_kernels.bitmask import pack
from heptagram_kernels.sampling import VerifySampled
from tests.kernels.sampling_cases import Draws, SampledCase, exact, first_rows, p_value, sampling_of

OURS: Mapping[str, VerifySampled] = {"cpu": cpu_sampling.verify_sampled, "torch": torch_sampling.verify_sampled}
VERIFIERS: Mapping[str, VerifySampled] = {**OURS, "reference": reference.verify_sampled}
LOGITS = (1.0, 0.2, -0.5, 2.0, 0.2, -3.0)


@st.composite
def cases(draw: st.DrawFn) -> SampledCase:
    """Few distinct logits, so that ties, full nuclei and accepted drafts happen; -inf and NaN now and then."""
    batch, width = draw(st.integers(1, 3)), draw(st.sampled_from([5, 32, 70]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float32]))
    values = random.choice([0.0, 1.0, 2.5, -1.0, 6.0, -30.0], size=(batch, 8, width))
    if draw(st.booleans()):
        values += random.normal(size=values.shape)
    values[random.random(values.shape) < draw(st.sampled_from([0, 0.3]))] = -math.inf
    values[random.random(values.shape) < draw(st.sampled_from([0, 0.01]))] = math.nan
    masks = random.random((6, width)) < draw(st.sampled_from([0.05, 0.5, 1.0]))
    places = sorted(random.permutation(batch)[: draw(st.integers(0, batch))].tolist())
    return SampledCase(
        logits=torch.from_numpy(values).to(dtype),
        token_ids=torch.from_numpy(random.integers(0, min(width, 8), (batch, 8))),
        draft_counts=torch.from_numpy(random.integers(0, 8, batch)),
        mask_pool=torch.from_numpy(np.stack([pack(mask) for mask in masks])),
        mask_rows=torch.from_numpy(random.integers(0, 6, (batch, 8))),
        sampling=sampling_of([draw(_draws(width)) for _ in places], places),
    )


def _draws(width: int) -> st.SearchStrategy[Draws]:
    tokens = st.integers(0, width - 1)
    return st.builds(
        Draws,
        seed=st.integers(-(2**63), 2**63 - 1),
        position=st.integers(0, 2**31),
        temperature=st.sampled_from([0.0, 1e-300, 0.01, 0.7, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 2, 4, 1000]),
        top_p=st.sampled_from([1.0, 0.999, 0.77, 0.31, 1e-9]),
        min_p=st.sampled_from([0.0, 0.053, 1.0]),
        repetition=st.sampled_from([1.0, 1.3, 0.4, 2.0]),
        presence=st.sampled_from([0.0, 1.5, -2.0]),
        frequency=st.sampled_from([0.0, 0.3, -0.9]),
        probabilistic=st.booleans(),
        history=st.dictionaries(tokens, st.integers(0, 3), max_size=6),
        bias=st.dictionaries(tokens, st.sampled_from([-100.0, -1.0, 0.5, 100.0]), max_size=4),
    )


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_devices_equal_the_reference(name: str, case: SampledCase) -> None:
    assert case.run(OURS[name]) == case.run(reference.verify_sampled)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("allowed", [5, 3000, 49152])
def test_real_width(name: str, dtype: torch.dtype, allowed: int) -> None:
    random = np.random.default_rng(0)
    masks = np.zeros((17, 49152), dtype=np.bool_)
    for row in masks:
        row[random.choice(49152, allowed, replace=False)] = True
    kinds = [
        Draws(1),
        Draws(2, temperature=0.7, top_k=50, top_p=0.9),
        Draws(3, temperature=1.5, top_p=0.99),
        Draws(4, temperature=2, min_p=0.01, repetition=1.2, history={int(t): 1 for t in random.integers(0, 49152, 99)}),
    ]
    case = SampledCase(
        logits=torch.from_numpy(random.normal(size=(4, 8, 49152), scale=3).astype(np.float32)).to(dtype),
        token_ids=torch.zeros((4, 8), dtype=torch.int64),
        draft_counts=torch.zeros(4, dtype=torch.int64),
        mask_pool=torch.from_numpy(np.stack([pack(mask) for mask in masks])),
        mask_rows=torch.arange(32).view(4, 8) % 17,
        sampling=sampling_of(kinds),
    )
    assert case.run(OURS[name]) == case.run(reference.verify_sampled)


_HISTORY = {0: 2, 2: 1, 3: 0, 5: 4}
_KINDS: Mapping[str, Draws] = {
    "plain": Draws(),
    "warm": Draws(temperature=2.0),
    "cool": Draws(temperature=0.6),
    "top_k": Draws(top_k=3),
    "top_k with a tie": Draws(top_k=4),
    "top_p": Draws(temperature=1.4, top_p=0.8),
    "top_p of one": Draws(top_p=0.01),
    "min_p": Draws(temperature=1.5, min_p=0.2),
    "all three": Draws(temperature=2.0, top_k=5, top_p=0.9, min_p=0.1),
    "repetition": Draws(repetition=1.7, history=_HISTORY),
    "presence": Draws(presence=1.0, history=_HISTORY),
    "frequency": Draws(frequency=-0.5, history=_HISTORY),
    "bias": Draws(bias={3: -1.5, 2: 2.0, 1: -100.0}),
    "everything": Draws(
        temperature=1.3, top_p=0.97, repetition=0.8, presence=0.4, frequency=0.2, history=_HISTORY, bias={4: 1.0}
    ),
}


@pytest.mark.parametrize("allowed", [None, (0, 2, 3, 4)], ids=["free", "masked"])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_the_distribution_is_exact(verifier: str, kind: str, allowed: Sequence[int] | None) -> None:
    draws = [
        replace(_KINDS[kind], seed=seed, position=seed % 7) for seed in range(500 if verifier == "reference" else 2000)
    ]
    drawn = np.array(first_rows(LOGITS, draws, allowed).run(VERIFIERS[verifier])[0])[:, 0]
    expected = exact(LOGITS, _KINDS[kind], allowed)
    rare = expected * len(draws) < 5  # too few to test one by one; lumped with the likeliest
    counts = np.bincount(drawn, minlength=len(LOGITS))
    assert not counts[expected == 0].any()
    lumped = counts[~rare], expected[~rare]
    lumped[0][0] += counts[rare].sum()
    lumped[1][0] += expected[rare].sum()
    assert p_value(*lumped) > 0.001


@pytest.mark.parametrize("proposed", range(3))
@pytest.mark.parametrize("kind", ["warm", "all three", "everything"])
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_proposed_token_changes_no_distribution_and_is_accepted_with_its_probability(
    verifier: str, kind: str, proposed: int
) -> None:
    count = 500 if verifier == "reference" else 2000
    draws = [replace(_KINDS[kind], seed=seed, probabilistic=True) for seed in range(count)]
    case = first_rows(LOGITS, draws)
    case.token_ids[:, 1] = proposed
    case.draft_counts[:] = 1
    verified, accepted = case.run(VERIFIERS[verifier])
    expected = exact(LOGITS, _KINDS[kind])
    counts = np.bincount([row[0] for row in verified], minlength=len(LOGITS))
    assert sum(accepted) == counts[proposed]
    shares = np.array([expected[proposed], 1 - expected[proposed]])
    assert p_value(np.array([counts[proposed], count - counts[proposed]]), shares) > 0.001
    others = np.delete(counts, proposed), np.delete(expected, proposed)
    rare = others[1] * count < 5
    assert not others[0][others[1] == 0].any()
    assert p_value(others[0][~rare], others[1][~rare] / others[1][~rare].sum()) > 0.001


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_neighbouring_positions_are_independent(verifier: str) -> None:
    """One seed, all positions: pairs of neighbours have the product distribution."""
    draws = [Draws(seed=5, position=position) for position in range(600 if verifier == "reference" else 3000)]
    drawn = np.array(first_rows(LOGITS[:3], draws).run(VERIFIERS[verifier])[0])[:, 0]
    chances = exact(LOGITS[:3], Draws())
    pairs = np.bincount(drawn[:-1:2] * 3 + drawn[1::2], minlength=9)
    assert p_value(pairs, np.outer(chances, chances).ravel()) > 0.001


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_row_draws_what_the_same_position_draws_elsewhere(verifier: str) -> None:
    """Row 3 of a sequence at position 10 and row 0 of one at 13, whatever the drafts, as long as they were accepted."""
    random = np.random.default_rng(1)
    logits = torch.from_numpy(random.normal(size=(1, 8, 40)).astype(np.float32))
    draws = Draws(seed=9, position=10, frequency=0.7, repetition=1.4, history={3: 1, 4: 0})
    alone: list[int] = []
    for row in range(8):
        seen: dict[int, int] = dict(draws.history)
        for token in alone:
            seen[token] = seen.get(token, 0) + 1
        case = first_rows(logits[0, row].tolist(), [replace(draws, position=10 + row, history=seen)])
        alone.append(case.run(VERIFIERS[verifier])[0][0][0])
    for right in range(8):
        drafts = [7, *alone[:right], *[(token + 1) % 40 for token in alone[right:7]]]
        case = SampledCase(
            logits=logits,
            token_ids=torch.tensor([drafts]),
            draft_counts=torch.tensor([7]),
            mask_pool=torch.from_numpy(pack(np.ones(40, dtype=np.bool_))[None]),
            mask_rows=torch.zeros((1, 8), dtype=torch.int64),
            sampling=sampling_of([draws]),
        )
        verified, accepted = case.run(VERIFIERS[verifier])
        assert (verified[0], accepted[0]) == (alone[: right + 1] + [0] * (7 - right), right)


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("logits", "allowed"),
    [((1.0, math.nan), None), ((-math.inf, -math.inf), None), ((1.0, math.inf), None), ((1.0, 2.0), ())],
)
def test_rows_of_which_nothing_can_be_drawn(
    verifier: str, temperature: float, logits: Sequence[float], allowed: Sequence[int] | None
) -> None:
    verified, _ = first_rows(logits, [Draws(temperature=temperature)], allowed).run(VERIFIERS[verifier])
    assert verified[0][0] == -1


def _case() -> SampledCase:
    return first_rows(LOGITS, [Draws(history={1: 1}, bias={2: 1.0}), Draws()])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sequences", torch.tensor([0, 0]), "sequences: .* none twice"),
        ("sequences", torch.tensor([0, 2]), "sequences: .* must be 0 to 1"),
        ("seeds", torch.zeros(1, dtype=torch.int64), "seeds: got"),
        ("temperature", torch.zeros(2), "temperature: got torch.float32"),
        ("temperature", torch.tensor([1.0, -1.0]).double(), "temperature: .* must be from 0 on"),
        ("top_k", torch.tensor([0, -1]), "top_k: .* must be from 0 on"),
        ("top_p", torch.tensor([0.0, 1.0]).double(), "top_p: .* must be above 0"),
        ("repetition", torch.tensor([1.0, 0.0]).double(), "repetition: .* must be above 0"),
        ("history_ids", torch.tensor([6]), "history_ids: .* must be from 0 to 5"),
        ("history_ends", torch.tensor([1, 2]), "history_ends: .* end at the 1 entries"),
        ("bias_ends", torch.tensor([1, 0]), "bias_ends: .* must rise"),
        ("biases", torch.zeros(2).double(), "biases: got"),
        ("min_p", torch.zeros(2, dtype=torch.float64, device="meta"), "min_p: got .* on meta"),
    ],
)
def test_wrong_arguments_are_named(name: str, value: Tensor, message: str) -> None:
    case = _case()
    changed: dict[str, Any] = {name: value}
    case.sampling = replace(case.sampling, **changed)
    with pytest.raises(ValueError, match=message):
        case.run(cpu_sampling.verify_sampled)
