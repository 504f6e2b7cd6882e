"""The oracle of :class:`heptagram_kernels.ops.Ops`, in plain torch of static shapes: nothing waits for a value."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import AT_LIMIT, NO_CHOICE, RUNNING, STOPPED
from heptagram_kernels.reference import masked_argmax as argmax_of
from heptagram_kernels.reference import unpack
from heptagram_kernels.torch_noise import gumbel, streams


def masked_argmax(logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor) -> None:
    out.copy_(argmax_of(logits, allowed(mask_pool, mask_rows, real_tokens, logits.shape[1])))


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
    mask = allowed(mask_pool, mask_rows, real_tokens, logits.shape[1])
    best = argmax_of(logits, mask)
    masked = logits.double().masked_fill(~mask, -math.inf)
    top = masked.amax(dim=-1, keepdim=True)
    scores = (masked - top) / temperature.unsqueeze(1)
    drawn = argmax_of(scores + gumbel(streams(seeds, positions), logits.shape[1]), mask)
    drawn = torch.where(temperature > 0, drawn, best)
    out.copy_(torch.where(top.squeeze(1).isfinite(), drawn, NO_TOKEN))


def top_candidates(
    logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out_ids: Tensor, out_logits: Tensor
) -> None:
    mask = allowed(mask_pool, mask_rows, real_tokens, logits.shape[1]) & ~logits.isnan()
    best = logits.float().masked_fill(~mask, -math.inf).sort(dim=-1, descending=True, stable=True)
    count = min(out_ids.shape[1], logits.shape[1])
    out_ids.fill_(NO_TOKEN)
    out_logits.fill_(-math.inf)
    out_logits[:, :count] = best.values[:, :count]
    out_ids[:, :count] = torch.where(best.values > -math.inf, best.indices, NO_TOKEN)[:, :count]


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
    row = torch.arange(ROWS, device=chosen.device)
    confirmed = (token_ids[:, 1:] == chosen[:, :-1]) & (row[1:] <= draft_counts.unsqueeze(1))
    proposed = confirmed.long().cumprod(dim=1).sum(dim=1) + 1
    stops = (chosen.unsqueeze(2) == stop_ids).any(dim=2)
    to_stop = torch.where(stops, row + 1, ROWS + 1).amin(dim=1)
    to_gap = torch.where(chosen < 0, row, ROWS + 1).amin(dim=1)
    counts = torch.minimum(torch.minimum(proposed, room), torch.minimum(to_stop, to_gap))
    finished = torch.where(counts == room, AT_LIMIT, RUNNING)
    finished = torch.where((to_gap < proposed) & (counts == to_gap), NO_CHOICE, finished)
    out_finished.copy_(torch.where(counts == to_stop, STOPPED, finished))
    out_counts.copy_(counts)
    out_tokens.copy_(torch.where(row < counts.unsqueeze(1), chosen, NO_TOKEN))


def markov_logits(base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor, out: Tensor) -> None:
    out.copy_(base.float() + w1[previous].float() @ w2.float().T)


def draft_confidence(hidden: Tensor, previous: Tensor, w1: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    features = torch.cat([hidden.float(), w1[previous].float()], dim=1)
    out.copy_(torch.sigmoid((features * weight).sum(dim=1) + bias))


def kv_write(
    cache: Tensor, rows: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor, block_size: int
) -> None:
    places = positions.unsqueeze(1) + torch.arange(rows.shape[1], device=cache.device)
    inside = places < block_tables.shape[1] * block_size
    at = _cache_rows(block_tables, slots, places.clamp(max=block_tables.shape[1] * block_size - 1), block_size)
    # subtle: rows behind the table go where the last row inside it goes, and carry what that row leaves there.
    last = (inside.sum(dim=1, keepdim=True) - 1).expand(-1, rows.shape[1])
    source = torch.minimum(torch.arange(rows.shape[1], device=cache.device), last)
    kept = rows.gather(1, source.clamp(min=0).unsqueeze(2).expand_as(rows))
    kept = torch.where((last < 0).unsqueeze(2), cache[at], kept)
    cache[at.flatten()] = kept.flatten(0, 1)


def kv_gather(cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, out: Tensor) -> None:
    places = torch.arange(out.shape[1], device=cache.device).expand(out.shape[:2])
    out.copy_(cache[_cache_rows(block_tables, slots, places, block_size)])


def scatter_rows(pool: Tensor, rows: Tensor, places: Tensor) -> None:
    kept = torch.where(places.unsqueeze(1) == 0, pool[0], rows)
    pool[places] = kept


def allowed(mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, vocab_size: int) -> Tensor:
    """Bool [N, V]; row 0 of the pool is known without being read, and row -1 allows nothing."""
    real = torch.arange(vocab_size, device=mask_pool.device) < real_tokens
    place = mask_rows.unsqueeze(1)
    return torch.where(place == 0, real, unpack(mask_pool[mask_rows.clamp(min=0)], vocab_size)) & (place >= 0)


def _cache_rows(block_tables: Tensor, slots: Tensor, places: Tensor, block_size: int) -> Tensor:
    """Cache rows [B, T] of the positions ``places`` [B, T]."""
    blocks = block_tables[slots].gather(1, places // block_size)
    return blocks * block_size + places % block_size
