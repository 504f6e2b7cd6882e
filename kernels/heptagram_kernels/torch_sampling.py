"""Sampling in torch of static shapes: no value is read on the host, so it can be captured, and runs on any device.

All numbers are float64, as on the CPU. Sequences are taken a few at a time, which bounds what their rows need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN, check_arguments
from heptagram_kernels.layout import ROWS
from heptagram_kernels.reference import masked_argmax, unpack
from heptagram_kernels.sampling import Sampling, check_sampling
from heptagram_kernels.torch_noise import streams, uniforms

_AT_ONCE: Final = 16  # sequences; at a width of 129,280 one float64 tensor of their rows takes 132 MB


@dataclass(frozen=True, slots=True)
class _Part:
    """Sequences ``start`` to ``end`` of a :class:`Sampling`, and their numbers as [S, 1, 1]."""

    sampling: Sampling
    start: int
    end: int

    def column(self, name: str) -> Tensor:
        column: Tensor = getattr(self.sampling, name)[self.start : self.end]
        return column.view(-1, 1, 1)

    def spread(self, ids: Tensor, values: Tensor, ends: Tensor, width: int) -> Tensor:
        """Ragged entries as [S, 1, V], zero where there is none."""
        owner = torch.searchsorted(ends, torch.arange(ids.numel(), device=ids.device), right=True) - self.start
        count = self.end - self.start
        mine = (owner >= 0) & (owner < count)
        table = values.new_zeros((count + 1, width))  # the last row takes what belongs to others
        table.index_put_((owner.where(mine, torch.full_like(owner, count)), ids), values)
        return table[:count].unsqueeze(1)


def verify_sampled(
    *,
    logits: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    sampling: Sampling,
    out_verified: Tensor,
    out_accepted: Tensor,
) -> None:
    """See :class:`heptagram_kernels.sampling.VerifySampled`; values are not checked, which would wait for them."""
    check_arguments(
        logits=logits,
        token_ids=token_ids,
        draft_counts=draft_counts,
        mask_pool=mask_pool,
        mask_rows=mask_rows,
        out_verified=out_verified,
        out_accepted=out_accepted,
    )
    check_sampling(sampling, logits=logits)
    width, row = logits.shape[2], torch.arange(ROWS, device=logits.device)
    for start in range(0, sampling.sequences.numel(), _AT_ONCE):
        part = _Part(sampling, start, min(start + _AT_ONCE, sampling.sequences.numel()))
        places = sampling.sequences[start : part.end]
        drafts, counts = token_ids.index_select(0, places)[:, 1:], draft_counts.index_select(0, places).unsqueeze(1)
        live = row[:-1] < counts
        allowed = unpack(mask_pool[mask_rows.index_select(0, places)], width)
        edited = _edited(part, logits.index_select(0, places).double(), drafts, live)
        drawn = _drawn(part, edited.masked_fill(~allowed, -math.inf), drafts, live)
        accepted = ((drafts == drawn[:, :-1]) & live).long().cumprod(dim=1).sum(dim=1)
        out_accepted.index_copy_(0, places, accepted)
        out_verified.index_copy_(0, places, drawn * (row <= accepted.unsqueeze(1)))


def _edited(part: _Part, logits: Tensor, drafts: Tensor, live: Tensor) -> Tensor:
    """Logits [S, 8, V] after bias and penalties; row r's history ends with the drafts before it."""
    sampling, width = part.sampling, logits.shape[2]
    logits = logits + part.spread(sampling.bias_ids, sampling.biases, sampling.bias_ends, width)
    new = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    new[:, 1:].scatter_(2, drafts.unsqueeze(2), live.unsqueeze(2).long())
    new = new.cumsum(dim=1)
    ids, ends = sampling.history_ids, sampling.history_ends
    seen = part.spread(ids, torch.ones_like(ids), ends, width) + new > 0
    counts = part.spread(ids, sampling.history_counts, ends, width) + new
    repetition = part.column("repetition")
    penalized = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen, penalized, logits)
    return logits - part.column("frequency") * counts - part.column("presence") * (counts > 0)


def _drawn(part: _Part, masked: Tensor, drafts: Tensor, live: Tensor) -> Tensor:
    """Tokens [S, 8] of masked logits [S, 8, V]; -1 where nothing can be drawn."""
    sampling, row = part.sampling, torch.arange(ROWS, device=masked.device)
    top, best = masked.amax(dim=-1, keepdim=True), masked_argmax(masked, masked > -math.inf)
    scores = _truncated(part, (masked - top) / part.column("temperature"))
    positions = sampling.positions[part.start : part.end].unsqueeze(1) + row
    seeds = sampling.seeds[part.start : part.end].unsqueeze(1).expand_as(positions)
    uniform = uniforms(streams(seeds, positions), masked.shape[2])
    noisy = scores - torch.log(-torch.log1p(-uniform))
    drawn = masked_argmax(noisy, scores > -math.inf)
    # Rejection sampling: the draft by its probability, or else the best of the others.
    proposed = drafts.unsqueeze(2)
    chance, luck = scores.softmax(dim=-1)[:, :-1].gather(2, proposed), uniform[:, :-1].gather(2, proposed)
    others = scores[:, :-1].scatter(2, proposed, -math.inf)
    replaced = masked_argmax(noisy[:, :-1], others > -math.inf)
    verdicts = torch.where((luck < chance).squeeze(2), drafts, replaced)
    judged = live & sampling.probabilistic[part.start : part.end].unsqueeze(1)
    drawn[:, :-1] = torch.where(judged, verdicts, drawn[:, :-1])
    tokens = torch.where(part.column("temperature").squeeze(2) > 0, drawn, best)
    return tokens.masked_fill(~top.squeeze(2).isfinite(), NO_TOKEN)


def _truncated(part: _Part, scores: Tensor) -> Tensor:
    """Scores [S, 8, V], -inf where min-p, top-k or top-p cut; the largest of each row is 0."""
    scores = scores.masked_fill(scores < part.column("min_p").log(), -math.inf)
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[2], device=scores.device)
    top_k, top_p = part.column("top_k"), part.column("top_p")
    cut = (top_k > 0) & (rank >= top_k)
    mass = values.masked_fill(cut, -math.inf).exp()
    # subtle: in the order of the ranks, so that a cumulative sum of a few does not depend on the others.
    before = mass.cumsum(dim=-1) - mass
    cut = cut | ((top_p < 1) & (before >= top_p * mass.sum(dim=-1, keepdim=True)))
    return scores.masked_fill(
        torch.zeros_like(cut.expand_as(scores)).scatter(2, order, cut.expand_as(scores)), -math.inf
    )
