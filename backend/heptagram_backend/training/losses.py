"""The losses of a DSpark drafter, after "DSpark" (DeepSpec, deepseek-ai/DeepSpec).

At each position of a block: cross-entropy with the token that stands there, the distance between the drafter's and the
target's distribution (what rejection costs), and for the confidence head the chance of acceptance that follows from it.
Positions count less from left to right, since a draft is used only as far as all before it were accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class LossWeights:
    """How much each loss counts; position ``k`` from 0 counts ``exp(-k / decay)``."""

    cross_entropy: float = 0.1
    distance: float = 0.9
    confidence: float = 1.0
    decay: float = 4.0


@dataclass(frozen=True, slots=True)
class Thought:
    """What the target thought: its likeliest tokens as places in the draft vocabulary, int64 [..., k], whose size
    stands for those that are never proposed, and their chances float32 [..., k]."""

    ids: Tensor
    chances: Tensor


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over positions. ``total`` is weighed; ``acceptance`` is the chance that a position is accepted."""

    total: Tensor
    cross_entropy: Tensor
    distance: Tensor
    confidence: Tensor
    acceptance: Tensor


def draft_losses(
    logits: Tensor,
    labels: Tensor,
    thought: Thought,
    counts: Tensor,
    confidence: Tensor | None,
    weights: LossWeights,
) -> Losses:
    """The losses of some blocks.

    Args:
        logits: [N, block, draft vocabulary].
        labels: int64 [N, block], the tokens that stand there; the draft vocabulary's size for one outside of it.
        thought: of the target, [N, block, k].
        counts: bool [N, block], positions that are part of an answer.
        confidence: float32 [N, block], chances, if the drafter has such a head.
    """
    logits = logits.float()
    size = logits.shape[-1]
    by_place = torch.exp(-torch.arange(logits.shape[1], device=logits.device) / weights.decay)
    # A token outside the vocabulary ends every draft: what stands behind it is never asked for.
    proposed = labels < size
    before = torch.cat([torch.ones_like(proposed[:, :1]), proposed[:, :-1]], dim=1)
    reached = counts & before.cumprod(dim=1).bool()
    mass = by_place * reached
    entropy = functional.cross_entropy(logits.flatten(0, 1), labels.clamp(max=size - 1).flatten(), reduction="none")
    acceptance = expected_acceptance(torch.softmax(logits, dim=-1), thought)
    cross_entropy = _mean(entropy.view_as(labels), mass * proposed)
    distance = _mean(2 * (1 - acceptance), mass)
    sure = logits.new_zeros(())
    if confidence is not None:
        chance = confidence.clamp(1e-6, 1 - 1e-6)
        sure = _mean(functional.binary_cross_entropy(chance, acceptance.detach(), reduction="none"), mass)
    total = weights.cross_entropy * cross_entropy + weights.distance * distance + weights.confidence * sure
    return Losses(total, cross_entropy, distance, sure, _mean(acceptance.detach(), reached.float()))


def expected_acceptance(chances: Tensor, thought: Thought) -> Tensor:
    """``1 - TV`` [...] of a drafter's ``chances`` [..., draft vocabulary] and what the target thought.

    All that is not among the target's likeliest tokens counts as one event, which makes the distance a lower bound;
    with all of the vocabulary it is exact.
    """
    known = (thought.ids < chances.shape[-1]) & (thought.chances > 0)
    drafted = chances.gather(-1, thought.ids.clamp(max=chances.shape[-1] - 1)) * known
    others = torch.minimum(1 - drafted.sum(-1), 1 - thought.chances.sum(-1)).clamp(min=0)
    return (torch.minimum(drafted, thought.chances).sum(-1) + others).clamp(max=1)


def _mean(values: Tensor, mass: Tensor) -> Tensor:
    return (values * mass).sum() / mass.sum().clamp(min=1e-6)
