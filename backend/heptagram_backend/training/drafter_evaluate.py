"""How a drafter does on answers that it was not trained on, and a confidence head that says what is so.

Accepted tokens are counted along the target's own greedy answers, block by block, without running the target: the
verification of a greedy answer accepts a draft exactly if it is what the answer says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.drafts.dspark.walk import walk
from heptagram_backend.training.drafter_blocks import cut, every_anchor, hidden_states
from heptagram_backend.training.drafter_data import Answer

_BINS = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """All blocks of one answer: ``right`` bool [N, block], drafts that are what the answer says, ``counts`` bool
    [N, block], those inside of it, ``confidence`` float32 [N, block]."""

    right: Tensor
    counts: Tensor
    confidence: Tensor | None

    @property
    def reached(self) -> Tensor:
        """Bool [N, block]: every draft before this one is right."""
        before = torch.cat([torch.ones_like(self.right[:, :1]), self.right[:, :-1]], dim=1)
        return before.cumprod(dim=1).bool() & self.counts


@dataclass(frozen=True, slots=True)
class Accepted:
    """``tokens_per_step`` counts the bonus token. ``by_position[k]``: the share of drafts at place ``k`` that were
    accepted, of those that were reached."""

    answers: int
    tokens_per_step: float
    by_position: tuple[float, ...]

    def __str__(self) -> str:
        shares = " ".join(f".{round(100 * share):02d}" if share < 0.995 else "1." for share in self.by_position)
        return f"{self.tokens_per_step:.2f} tokens a step over {self.answers} answers (by position {shares})"


@torch.inference_mode()
def judge(network: DraftNetwork, answer: Answer) -> Judged:
    """What the network would draft at each place of ``answer``."""
    blocks = cut(network, answer, every_anchor(answer))
    anchors = blocks.anchors.to(network.fc.weight.device)
    walked = walk(network, hidden_states(network, answer, blocks), anchors)
    places = (blocks.positions.unsqueeze(1) + 1 + torch.arange(network.config.block_size)).clamp(
        max=len(answer.tokens) - 1
    )
    right = (walked.tokens.cpu() == answer.tokens[places]) & blocks.counts
    return Judged(right, blocks.counts, None if walked.confidence is None else walked.confidence.cpu())


def accepted(judged: Sequence[Judged]) -> Accepted:
    """Steps along each answer, each from where the one before ended."""
    steps = tokens = 0
    reached = right = torch.zeros(1)
    for one in judged:
        lengths = one.right.int().cumprod(dim=1).sum(dim=1).tolist()
        place, hits, tries = 0, [], []
        while place < len(lengths):
            hits.append(one.right[place] & one.reached[place])
            tries.append(one.reached[place])
            step = min(lengths[place] + 1, len(lengths) - place)
            steps, tokens, place = steps + 1, tokens + step, place + step
        reached, right = reached + torch.stack(tries).sum(0), right + torch.stack(hits).sum(0)
    shares = (right / reached.clamp(min=1)).tolist()
    return Accepted(len(judged), tokens / max(1, steps), tuple(shares))


def by_kind(network: DraftNetwork, answers: Sequence[Answer]) -> dict[str, Accepted]:
    """Of the greedy answers, by what was asked for."""
    greedy = [answer for answer in answers if answer.seed is None]
    kinds = sorted({answer.kind for answer in greedy})
    return {kind: accepted([judge(network, one) for one in greedy if one.kind == kind]) for kind in kinds}


def calibrate(network: DraftNetwork, answers: Sequence[Answer]) -> tuple[float, float] | None:
    """Make confidences what they say, by the right drafts of greedy ``answers``; None without a confidence head.

    Scale and shift of the head's logit are fitted on every other answer, by Newton's method on the log likelihood, and
    become part of its weights.

    Returns:
        The expected calibration error on the other half, before and after.
    """
    if network.confidence_head is None:
        return None
    greedy = [answer for answer in answers if answer.seed is None]
    known, shown = ([judge(network, one) for one in greedy[half::2]] for half in (0, 1))
    if not known or not shown:
        return None
    scale, shift = fitted(*_pairs(known))
    logits, right = _pairs(shown)
    head = network.confidence_head.proj
    with torch.no_grad():
        head.weight.mul_(scale)
        head.bias.mul_(scale).add_(shift)
    return calibration_error(torch.sigmoid(logits), right), calibration_error(
        torch.sigmoid(scale * logits + shift), right
    )


def calibration_error(chances: Tensor, right: Tensor) -> float:
    """Mean distance of ``chances`` [n] from the share of ``right`` [n], in ten bins of equal width."""
    bins = (chances * _BINS).long().clamp(max=_BINS - 1)
    told = torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bins, chances.double())
    seen = torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bins, right.double())
    return float((told - seen).abs().sum() / max(1, len(chances)))


def _pairs(judged: Sequence[Judged]) -> tuple[Tensor, Tensor]:
    """Logits of the confidence, and whether the draft was right, of all that was reached."""
    chances = torch.cat([one.confidence[one.reached] for one in judged if one.confidence is not None])
    right = torch.cat([one.right[one.reached] for one in judged])
    return torch.logit(chances.double(), eps=1e-6), right.double()


def fitted(logits: Tensor, right: Tensor) -> tuple[float, float]:
    """Scale and shift of the likeliest ``sigmoid(scale * logits + shift)``."""
    rows = torch.stack([logits, torch.ones_like(logits)], dim=1)
    found = torch.tensor([1.0, 0.0], dtype=torch.float64)
    ridge = 1e-3 * torch.eye(2, dtype=torch.float64)
    for _ in range(50):
        chances = torch.sigmoid(rows @ found)
        slope = rows.T @ (chances - right) + 1e-3 * (found - torch.tensor([1.0, 0.0], dtype=torch.float64))
        curve = rows.T @ (rows * (chances * (1 - chances)).unsqueeze(1)) + ridge
        step = torch.linalg.solve(curve, slope)
        found = found - step.clamp(-1, 1)
    return float(found[0]), float(found[1])
