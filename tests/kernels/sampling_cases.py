"""Batches of sampling sequences for the tests of the kernels, and how to judge what is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels.bitmask import pack
from heptagram_kernels.sampling import Sampling, VerifySampled


@dataclass(frozen=True)
class Draws:
    """One sequence's part of a :class:`Sampling`; ``history`` maps tokens to how often they were generated."""

    seed: int = 0
    position: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    probabilistic: bool = False
    history: Mapping[int, int] = field(default_factory=dict)
    bias: Mapping[int, float] = field(default_factory=dict)


def sampling_of(draws: Sequence[Draws], places: Sequence[int] | None = None) -> Sampling:
    def whole(name: str) -> Tensor:
        return torch.tensor([getattr(draw, name) for draw in draws], dtype=torch.int64)

    def number(name: str) -> Tensor:
        return torch.tensor([getattr(draw, name) for draw in draws], dtype=torch.float64)

    def ragged(parts: Sequence[Mapping[int, float]], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        ids = torch.tensor([token for part in parts for token in part], dtype=torch.int64)
        values = torch.tensor([value for part in parts for value in part.values()], dtype=dtype)
        return ids, values, torch.tensor(np.cumsum([len(part) for part in parts]), dtype=torch.int64)

    history = ragged([draw.history for draw in draws], torch.int64)
    bias = ragged([draw.bias for draw in draws], torch.float64)
    numbers = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
    return Sampling(
        sequences=torch.tensor(range(len(draws)) if places is None else places, dtype=torch.int64),
        positions=whole("position"),
        seeds=whole("seed"),
        top_k=whole("top_k"),
        probabilistic=torch.tensor([draw.probabilistic for draw in draws], dtype=torch.bool),
        **{name: number(name) for name in numbers},
        **dict(zip(("history_ids", "history_counts", "history_ends"), history, strict=True)),
        **dict(zip(("bias_ids", "biases", "bias_ends"), bias, strict=True)),
    )


@dataclass
class SampledCase:
    logits: Tensor  # [B, 8, V]
    token_ids: Tensor  # [B, 8]
    draft_counts: Tensor  # [B]
    mask_pool: Tensor  # [P, W]
    mask_rows: Tensor  # [B, 8]
    sampling: Sampling

    def run(self, verify: VerifySampled) -> tuple[list[list[int]], list[int]]:
        """What it writes over 99s."""
        verified, accepted = torch.full_like(self.token_ids, 99), torch.full_like(self.draft_counts, 99)
        verify(
            logits=self.logits,
            token_ids=self.token_ids,
            draft_counts=self.draft_counts,
            mask_pool=self.mask_pool,
            mask_rows=self.mask_rows,
            sampling=self.sampling,
            out_verified=verified,
            out_accepted=accepted,
        )
        return verified.tolist(), accepted.tolist()


def first_rows(logits: Sequence[float], draws: Sequence[Draws], allowed: Sequence[int] | None = None) -> SampledCase:
    """A batch in which every sequence has the same logits in its only row, and all of the vocabulary or ``allowed``."""
    width, count = len(logits), len(draws)
    mask = np.ones(width, dtype=np.bool_) if allowed is None else np.isin(np.arange(width), allowed)
    return SampledCase(
        logits=torch.tensor(logits, dtype=torch.float32).expand(count, 8, width),
        token_ids=torch.zeros((count, 8), dtype=torch.int64),
        draft_counts=torch.zeros(count, dtype=torch.int64),
        mask_pool=torch.from_numpy(pack(mask)[None]),
        mask_rows=torch.zeros((count, 8), dtype=torch.int64),
        sampling=sampling_of(draws),
    )


def exact(logits: Sequence[float], draws: Draws, allowed: Sequence[int] | None = None) -> NDArray[np.float64]:
    """The distribution by its definition, one number at a time in Python."""
    scores = {token: float(np.float32(value)) for token, value in enumerate(logits)}
    scores = {token: value for token, value in scores.items() if allowed is None or token in allowed}
    for token in scores:
        scores[token] += draws.bias.get(token, 0)
        if token in draws.history:
            scores[token] *= draws.repetition if scores[token] <= 0 else 1 / draws.repetition
            count = draws.history[token]
            scores[token] -= draws.frequency * count + draws.presence * (count > 0)
        scores[token] /= draws.temperature
    best = max(scores.values())
    order = sorted(scores, key=lambda token: (-scores[token], token))
    order = [token for token in order if math.exp(scores[token] - best) >= draws.min_p * (1 - 1e-12)]
    order = order[: draws.top_k or None]
    weights = [math.exp(scores[token] - best) for token in order]
    kept = 1
    while sum(weights[:kept]) < draws.top_p * sum(weights) - 1e-12:
        kept += 1
    chances = np.zeros(len(logits))
    for token, weight in list(zip(order, weights, strict=True))[:kept]:
        chances[token] = weight / sum(weights[:kept])
    return chances


def p_value(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Pearson's chi-square test of ``counts`` against probabilities; what cannot happen must not have happened."""
    assert not counts[expected == 0].any(), "something of probability 0 was drawn"
    wanted = expected[expected > 0] * counts.sum()
    assert wanted.min() >= 5, "too few draws for the test"
    statistic = float((((counts[expected > 0] - wanted) ** 2) / wanted).sum())
    freedom = len(wanted) - 1
    if not freedom:
        return 1.0
    return float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(statistic / 2).double()))
