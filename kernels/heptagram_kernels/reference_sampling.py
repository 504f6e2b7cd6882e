"""The oracle of the sampling operations, in plain torch; see :mod:`heptagram_kernels.reference`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN, check_arguments
from heptagram_kernels.layout import ROWS
from heptagram_kernels.reference import masked_argmax, unpack
from heptagram_kernels.sampling import Sampling, check_logprobs, check_sampling
from heptagram_kernels.torch_noise import streams, uniforms


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
    """See :class:`heptagram_kernels.sampling.VerifySampled`."""
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
    for index, place in enumerate(sampling.sequences.tolist()):
        allowed = unpack(mask_pool[mask_rows[place]], logits.shape[2])
        drafts = token_ids[place, 1 : 1 + int(draft_counts[place])]
        edited = _edited(sampling, index, logits[place].double(), drafts)
        drawn = _drawn(sampling, index, edited.masked_fill(~allowed, -math.inf), drafts)
        live = torch.arange(ROWS, device=logits.device) <= draft_counts[place]
        confirmed = (token_ids[place, 1:] == drawn[:-1]) & live[1:]
        accepted = confirmed.long().cumprod(dim=0).sum()
        out_accepted[place] = accepted
        out_verified[place] = torch.where(torch.arange(ROWS, device=logits.device) <= accepted, drawn, 0)


def token_logprobs(
    *,
    logits: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    places: Tensor,
    tokens: Tensor,
    out_chosen: Tensor,
    out_ids: Tensor,
    out_logprobs: Tensor,
) -> None:
    """See :class:`heptagram_kernels.sampling.TokenLogprobs`."""
    check_logprobs(
        logits=logits,
        mask_pool=mask_pool,
        mask_rows=mask_rows,
        places=places,
        tokens=tokens,
        out_chosen=out_chosen,
        out_ids=out_ids,
        out_logprobs=out_logprobs,
    )
    sequences, rows = places.unbind(dim=1)
    allowed = unpack(mask_pool[mask_rows[sequences, rows]], logits.shape[2])
    masked = logits[sequences, rows].double().masked_fill(~allowed, -math.inf)
    logprobs = masked.log_softmax(dim=-1).masked_fill(~allowed, -math.inf)
    out_chosen.copy_(logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1))
    count = min(out_ids.shape[1], logits.shape[2])
    best = logprobs.sort(dim=-1, descending=True, stable=True)
    out_ids.fill_(NO_TOKEN)
    out_logprobs.fill_(-math.inf)
    out_logprobs[:, :count] = best.values[:, :count]
    out_ids[:, :count] = torch.where(allowed.gather(1, best.indices), best.indices, NO_TOKEN)[:, :count]


def _edited(sampling: Sampling, index: int, logits: Tensor, drafts: Tensor) -> Tensor:
    """Logits [8, V] of one sequence after bias and penalties; row r's history ends with the drafts before it."""
    biases = torch.zeros_like(logits[0])
    biases[_part(sampling.bias_ids, sampling.bias_ends, index)] = _part(sampling.biases, sampling.bias_ends, index)
    logits = logits + biases
    old = _part(sampling.history_ids, sampling.history_ends, index)
    counts = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    counts[:, old] = _part(sampling.history_counts, sampling.history_ends, index)
    seen[:, old] = True
    for row, draft in enumerate(drafts.tolist(), start=1):
        counts[row:, draft] += 1
        seen[row:, draft] = True
    repetition = sampling.repetition[index]
    penalized = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen, penalized, logits)
    return logits - sampling.frequency[index] * counts - sampling.presence[index] * (counts > 0)


def _drawn(sampling: Sampling, index: int, masked: Tensor, drafts: Tensor) -> Tensor:
    """Tokens [8] of masked logits [8, V]; -1 where nothing can be drawn."""
    top = masked.amax(dim=-1, keepdim=True)
    best = masked_argmax(masked, masked > -math.inf)
    usable = top.squeeze(-1).isfinite()
    if sampling.temperature[index] > 0:
        scores = _truncated(sampling, index, (masked - top) / sampling.temperature[index])
        positions = sampling.positions[index] + torch.arange(ROWS, device=masked.device)
        uniform = uniforms(streams(sampling.seeds[index], positions), masked.shape[-1])
        noisy = scores - torch.log(-torch.log1p(-uniform))
        best = masked_argmax(noisy, scores > -math.inf)
        if sampling.probabilistic[index]:
            rows = torch.arange(drafts.numel(), device=masked.device)
            chances = scores.softmax(dim=-1)[rows, drafts]
            scores[rows, drafts] = -math.inf
            others = masked_argmax(noisy, scores > -math.inf)[rows]
            best[rows] = torch.where(uniform[rows, drafts] < chances, drafts, others)
    return torch.where(usable, best, NO_TOKEN)


def _truncated(sampling: Sampling, index: int, scores: Tensor) -> Tensor:
    """Scores [8, V], -inf where min-p, top-k or top-p cut; the largest of each row is 0."""
    if sampling.min_p[index] > 0:
        scores = scores.masked_fill(scores < sampling.min_p[index].log(), -math.inf)
    order = scores.sort(dim=-1, descending=True, stable=True)
    rank = order.indices.argsort(dim=-1)
    if 0 < sampling.top_k[index] < scores.shape[-1]:
        scores = scores.masked_fill(rank >= sampling.top_k[index], -math.inf)
    if sampling.top_p[index] < 1:
        mass = scores.gather(-1, order.indices).exp()
        before = mass.cumsum(dim=-1) - mass
        outside = before >= sampling.top_p[index] * mass.sum(dim=-1, keepdim=True)
        scores = scores.masked_fill(outside.gather(-1, rank), -math.inf)
    return scores


def _part(entries: Tensor, ends: Tensor, index: int) -> Tensor:
    """One sequence's part of a ragged argument."""
    start = int(ends[index - 1]) if index else 0
    return entries[start : int(ends[index])]
