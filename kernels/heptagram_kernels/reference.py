"""The oracle: every operation in plain torch, on any device, written for clarity. Devices are tested against it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN, check_arguments
from heptagram_kernels.layout import ROWS


def verify_greedy(
    *,
    logits: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    out_verified: Tensor,
    out_accepted: Tensor,
) -> None:
    """See :class:`heptagram_kernels.bitmask.VerifyGreedy`."""
    check_arguments(
        logits=logits,
        token_ids=token_ids,
        draft_counts=draft_counts,
        mask_pool=mask_pool,
        mask_rows=mask_rows,
        out_verified=out_verified,
        out_accepted=out_accepted,
    )
    chosen = masked_argmax(logits, unpack(mask_pool[mask_rows], logits.shape[2]))
    live = torch.arange(ROWS, device=logits.device) <= draft_counts.unsqueeze(1)
    out_verified.copy_(torch.where(live, chosen, 0))
    confirmed = (token_ids[:, 1:] == out_verified[:, :-1]) & live[:, 1:]
    out_accepted.copy_(confirmed.long().cumprod(dim=1).sum(dim=1))


def unpack(words: Tensor, vocab_size: int) -> Tensor:
    """Packed rows, int32 [..., W], to bool [..., V]."""
    bits = (words.unsqueeze(-1) >> torch.arange(32, device=words.device)) & 1
    return bits.flatten(-2)[..., :vocab_size].bool()


def masked_argmax(logits: Tensor, allowed: Tensor) -> Tensor:
    """Lowest index of the largest allowed logit, int64 [...]; -1 where it is -inf, NaN, or nothing is allowed."""
    masked = logits.double().masked_fill(~allowed, -math.inf)
    top = masked.amax(dim=-1, keepdim=True)
    index = torch.arange(logits.shape[-1], device=logits.device)
    lowest = torch.where(masked == top, index, logits.shape[-1]).amin(dim=-1)
    usable = top.squeeze(-1) > -math.inf  # false for NaN, too
    return torch.where(usable, lowest, NO_TOKEN)
