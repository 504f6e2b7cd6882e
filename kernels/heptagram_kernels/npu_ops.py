"""The operations of :class:`heptagram_kernels.ops.Ops` for Ascend: torch of static shapes that a graph can capture.

Three rules keep it capturable. No value is read on the host. No Python number becomes a tensor, as the branches of
``torch.where`` would: it would be copied from the host. And only operators with a kernel for the device are called:
``cumprod``, ``bitwise_left_shift`` and others fall back to the CPU in torch_npu 2.13.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import AT_LIMIT, NO_CHOICE, STOPPED
from heptagram_kernels.reference_ops import draft_confidence, markov_logits
from heptagram_kernels.torch_noise import gumbel, streams

__all__ = [
    "draft_confidence",
    "kv_gather",
    "kv_write",
    "markov_logits",
    "masked_argmax",
    "masked_sample",
    "scatter_rows",
    "top_candidates",
    "verify_chain",
]


def masked_argmax(logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor) -> None:
    out.copy_(best(masked(logits, allowed(mask_pool, mask_rows, logits.shape[1], real_tokens))))


def masked_sample(
    logits: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    real_tokens: int,
    seeds: Tensor,
    positions: Tensor,
    temperature: Tensor,
    out: Tensor,
) -> None:
    """The noise is float64, which the device's vector units do not have: exact where it runs, and slow."""
    mask = allowed(mask_pool, mask_rows, logits.shape[1], real_tokens)
    scores = masked(logits, mask, torch.float64)
    top, greedy = scores.amax(dim=-1, keepdim=True), best(scores)
    noisy = (scores - top) / temperature.unsqueeze(1) + gumbel(streams(seeds, positions), logits.shape[1])
    drawn = torch.where(temperature > 0, best(noisy.masked_fill_(~mask, -math.inf)), greedy)
    out.copy_(drawn.masked_fill_(~(top.squeeze(1).isfinite() & (greedy >= 0)), NO_TOKEN))


def top_candidates(
    logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out_ids: Tensor, out_logits: Tensor
) -> None:
    mask = allowed(mask_pool, mask_rows, logits.shape[1], real_tokens) & ~logits.isnan()
    ordered = masked(logits, mask).sort(dim=-1, descending=True, stable=True)
    count = min(out_ids.shape[1], logits.shape[1])
    values, ids = ordered.values[:, :count], ordered.indices[:, :count]
    out_ids.fill_(NO_TOKEN)
    out_logits.fill_(-math.inf)
    out_logits[:, :count] = values
    out_ids[:, :count] = ids.masked_fill(values == -math.inf, NO_TOKEN)


def verify_chain(
    chosen: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    room: Tensor,
    stop_ids: Tensor,
    out_tokens: Tensor,
    out_counts: Tensor,
    out_finished: Tensor,
) -> None:
    row = torch.arange(ROWS, device=chosen.device).expand(chosen.shape)
    proposed = accepted(chosen, token_ids, draft_counts) + 1
    stops = (chosen.unsqueeze(2) == stop_ids).any(dim=2)
    to_stop = (row + 1).masked_fill(~stops, ROWS + 1).amin(dim=1)
    to_gap = row.masked_fill(chosen >= 0, ROWS + 1).amin(dim=1)
    counts = torch.minimum(torch.minimum(proposed, room), torch.minimum(to_stop, to_gap))
    finished = torch.zeros_like(counts).masked_fill_(counts == room, AT_LIMIT)
    finished.masked_fill_((to_gap < proposed) & (counts == to_gap), NO_CHOICE)
    out_finished.copy_(finished.masked_fill_(counts == to_stop, STOPPED))
    out_counts.copy_(counts)
    out_tokens.copy_(chosen.masked_fill(row >= counts.unsqueeze(1), NO_TOKEN))


def kv_write(
    cache: Tensor, rows: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor, block_size: int
) -> None:
    count, end = rows.shape[1], block_tables.shape[1] * block_size
    row = torch.arange(count, device=cache.device).expand(rows.shape[:2])
    places = positions.unsqueeze(1) + row
    at = _cache_rows(block_tables, slots, places.clamp(max=end - 1), block_size)
    # subtle: all rows behind the table go to its last row, and must then carry what that row is to hold.
    last = (end - 1 - positions).clamp(min=-1, max=count - 1).unsqueeze(1)
    source = torch.minimum(row, last.clamp(min=0))
    kept = rows.gather(1, source.unsqueeze(2).expand(rows.shape))
    kept = torch.where((last < 0).unsqueeze(2), cache.index_select(0, at.flatten()).view(rows.shape), kept)
    put_rows(cache, at.flatten(), kept.flatten(0, 1))


def kv_gather(cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, out: Tensor) -> None:
    places = torch.arange(out.shape[1], device=cache.device).expand(out.shape[:2])
    at = _cache_rows(block_tables, slots, places, block_size)
    out.copy_(cache.index_select(0, at.flatten()).view(out.shape))


def scatter_rows(pool: Tensor, rows: Tensor, places: Tensor) -> None:
    put_rows(pool, places, torch.where(places.unsqueeze(1) == 0, pool[:1], rows))


def put_rows(target: Tensor, places: Tensor, rows: Tensor) -> None:
    """``target[places] = rows``; rows for one place are equal. The device's own scatter takes dense targets only."""
    if target.device.type == "npu" and target.is_contiguous():
        scatter: Any = torch.ops.npu.npu_scatter_nd_update_
        scatter(target, places.unsqueeze(1), rows)
    else:
        target.index_copy_(0, places, rows)


def allowed(mask_pool: Tensor, mask_rows: Tensor, vocab_size: int, real_tokens: int) -> Tensor:
    """Bool [N, V]; row 0 of the pool is known without being looked at, and row -1 allows nothing."""
    bits = torch.arange(32, dtype=torch.int32, device=mask_pool.device)  # int64 would double what is moved
    words = mask_pool.index_select(0, mask_rows.clamp(min=0)).unsqueeze(-1)
    mask = torch.bitwise_and(words >> bits, 1).flatten(-2)[:, :vocab_size] != 0
    real = torch.arange(vocab_size, device=mask_pool.device) < real_tokens
    place = mask_rows.unsqueeze(1)
    return torch.where(place == 0, real, mask) & (place >= 0)


def masked(logits: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A copy [N, V], -inf where ``mask`` is false. float32 holds a logit of every dtype exactly."""
    return logits.to(dtype, copy=True).masked_fill_(~mask, -math.inf)


def best(scores: Tensor) -> Tensor:
    """Lowest index of each row's largest score, int64 [N]; -1 where one is NaN, or all are -inf.

    Of equals the lowest is sought by itself: which one ``argmax`` takes is written nowhere, nor whether ``amax`` heeds
    NaN on the device.
    """
    top = scores.amax(dim=-1, keepdim=True)
    usable = (top.squeeze(-1) > -math.inf) & ~scores.isnan().any(dim=-1)
    index = torch.arange(scores.shape[-1], dtype=torch.int32, device=scores.device).expand(scores.shape)
    lowest = index.masked_fill(scores != top, scores.shape[-1]).amin(dim=-1)
    return lowest.long().masked_fill_(~usable, NO_TOKEN)


def accepted(chosen: Tensor, token_ids: Tensor, draft_counts: Tensor) -> Tensor:
    """Drafts confirmed from the first on, int64 [B], of ``chosen`` and ``token_ids`` [B, 8]."""
    draft = torch.arange(ROWS - 1, device=chosen.device).expand(chosen.shape[0], ROWS - 1)
    confirmed = (token_ids[:, 1:] == chosen[:, :-1]) & (draft < draft_counts.unsqueeze(1))
    return draft.masked_fill(confirmed, ROWS - 1).amin(dim=1)


def _cache_rows(block_tables: Tensor, slots: Tensor, places: Tensor, block_size: int) -> Tensor:
    """Cache rows [B, T] of the positions ``places`` [B, T]."""
    entry = places // block_size
    return block_tables.index_select(0, slots).gather(1, entry) * block_size + (places - entry * block_size)
