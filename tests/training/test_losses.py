"""The losses against their definitions, on vocabularies small enough to be written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heptagram_backend.training.losses import LossWeights, Thought, draft_losses, expected_acceptance


def _chances(*shape: int, seed: int) -> Tensor:
    return torch.softmax(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_acceptance_is_what_the_distributions_share() -> None:
    drafted, target = _chances(3, 5, 6, seed=0), _chances(3, 5, 6, seed=1)
    told = Thought(torch.arange(6).expand(3, 5, 6), target)
    shared = 1 - 0.5 * (drafted - target).abs().sum(-1)
    torch.testing.assert_close(expected_acceptance(drafted, told), shared)


def test_tokens_that_are_not_told_count_as_one() -> None:
    drafted, target = _chances(4, 6, seed=2), _chances(4, 6, seed=3)
    top = target.topk(3, dim=-1)
    merged = torch.minimum(drafted.gather(-1, top.indices), top.values).sum(-1)
    rest = torch.minimum(1 - drafted.gather(-1, top.indices).sum(-1), 1 - top.values.sum(-1))
    found = expected_acceptance(drafted, Thought(top.indices, top.values))
    torch.testing.assert_close(found, merged + rest)
    assert (found >= torch.minimum(drafted, target).sum(-1) - 1e-6).all()


def test_what_is_never_proposed_is_never_accepted() -> None:
    """Of the target's tokens half the mass lies outside the draft vocabulary, and two places are empty."""
    told = Thought(torch.tensor([[1, 3, 0, 0]]), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
    assert expected_acceptance(torch.tensor([[0.2, 0.7, 0.1]]), told).tolist() == pytest.approx([0.5])
    assert expected_acceptance(torch.tensor([[1.0, 0.0, 0.0]]), told).tolist() == pytest.approx([0.0])


def _one_block(logits: Tensor, labels: list[int], counts: list[bool], weights: LossWeights) -> dict[str, float]:
    certain = Thought(torch.tensor([labels]).unsqueeze(-1), torch.ones(1, len(labels), 1))
    confidence = torch.full((1, len(labels)), 0.25)
    found = draft_losses(logits, torch.tensor([labels]), certain, torch.tensor([counts]), confidence, weights)
    return {name: float(getattr(found, name)) for name in ("total", "cross_entropy", "distance", "confidence")}


def test_each_loss_is_a_mean_that_falls_off_from_left_to_right() -> None:
    logits, labels = torch.randn((1, 3, 4), generator=torch.Generator().manual_seed(4)), [2, 0, 3]
    weights = LossWeights(cross_entropy=0.1, distance=0.9, confidence=1.0, decay=2.0)
    found = _one_block(logits, labels, [True, True, False], weights)
    mass = [1, math.exp(-0.5)]
    right = torch.softmax(logits[0], dim=-1)[range(2), labels[:2]].tolist()
    entropy = sum(m * -math.log(p) for m, p in zip(mass, right, strict=True)) / sum(mass)
    distance = sum(m * 2 * (1 - p) for m, p in zip(mass, right, strict=True)) / sum(mass)
    sure = sum(m * -(p * math.log(0.25) + (1 - p) * math.log(0.75)) for m, p in zip(mass, right, strict=True)) / sum(
        mass
    )
    assert found["cross_entropy"] == pytest.approx(entropy, rel=1e-4)
    assert found["distance"] == pytest.approx(distance, rel=1e-4)
    assert found["confidence"] == pytest.approx(sure, rel=1e-4)
    assert found["total"] == pytest.approx(0.1 * entropy + 0.9 * distance + sure, rel=1e-4)


def test_nothing_counts_behind_a_token_that_is_never_proposed() -> None:
    logits = torch.randn((1, 3, 4), generator=torch.Generator().manual_seed(5))
    found = _one_block(logits, [1, 4, 2], [True] * 3, LossWeights())
    other = logits.clone()
    other[0, 2] += torch.tensor([5.0, 0.0, -5.0, 1.0])
    assert _one_block(other, [1, 4, 2], [True] * 3, LossWeights()) == found
    first = torch.log_softmax(logits[0, 0], dim=-1)[1]
    assert found["cross_entropy"] == pytest.approx(-float(first), rel=1e-4)
