"""The K7 step as a function of tensors: state and masks in, tokens out, and the state advanced where it lies.

No value goes through the host and no shape depends on one, so a device can capture it, and a batch whose masks do not
change can be stepped again at once. Written in plain torch; only the operations of the device differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import NOBODYS
from heptagram_kernels.sampling import Sampling

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Token ids [B, 8], positions [B] and slots [B] to logits [B, 8, V]."""


class DraftStep(Protocol):
    """A drafter that runs on the device."""

    def __call__(self, buffers: K7Buffers, anchors: Tensor) -> None:
        """Write ``next_drafts``, ``next_counts``, ``candidates`` and ``confidences`` behind ``anchors``, int64 [B]."""


def gather(buffers: K7Buffers) -> None:
    """The target's inputs, from the state of the step's slots."""
    torch.index_select(buffers.state_tokens, 0, buffers.slots, out=buffers.token_ids)
    torch.index_select(buffers.state_positions, 0, buffers.slots, out=buffers.positions)
    torch.index_select(buffers.state_draft_counts, 0, buffers.slots, out=buffers.draft_counts)


def settle(
    buffers: K7Buffers,
    logits: Tensor,
    *,
    device: Device,
    real_tokens: int,
    draft: DraftStep | None = None,
    sampling: Sampling | None = None,
) -> Tensor:
    """Verify under the masks, and advance the state.

    Only rows up to the last draft are looked at, and of those that are drawn no argmax is taken. Stop tokens are the
    host's: each sequence has its own.

    Returns:
        ``counts``, int64 [B]: how many of ``verified`` each sequence takes; 0 where its slot has another owner by now,
        where it is at its end, or where its first row had no usable logits.
    """
    owned = buffers.guards == buffers.state_generations[buffers.slots]
    # Nobody asks for rows behind the last draft, of padding, or of a slot's former owner.
    ends = (buffers.draft_counts + 1).mul_(owned).unsqueeze(1)
    rows = buffers.mask_rows.masked_fill(torch.arange(ROWS, device=ends.device) >= ends, NOBODYS)
    if sampling is not None:
        rows.index_fill_(0, sampling.sequences, NOBODYS)
    device.ops.masked_argmax(
        logits=logits.flatten(0, 1),
        mask_pool=buffers.mask_pool,
        mask_rows=rows.flatten(),
        real_tokens=real_tokens,
        out=buffers.verified.flatten(),
    )
    if sampling is not None:
        device.verify_sampled(
            logits=logits,
            token_ids=buffers.token_ids,
            draft_counts=buffers.draft_counts,
            mask_pool=buffers.mask_pool,
            mask_rows=buffers.mask_rows,
            sampling=sampling,
            out_verified=buffers.verified,
            out_accepted=buffers.counts,
        )
    limits = buffers.state_draft_limits[buffers.slots]
    device.ops.verify_chain(
        chosen=buffers.verified,
        token_ids=buffers.token_ids,
        draft_counts=buffers.draft_counts,
        room=(limits + 1).mul_(owned),
        stop_ids=buffers.slots[:0],
        out_tokens=buffers.verified,
        out_counts=buffers.counts,
        out_finished=buffers.finished,
    )
    _advance(buffers, limits, draft)
    return buffers.counts


def _advance(buffers: K7Buffers, limits: Tensor, draft: DraftStep | None) -> None:
    slots, live = buffers.slots, buffers.counts > 0
    last = buffers.verified.gather(1, (buffers.counts - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    anchors = torch.where(live, last, buffers.token_ids[:, 0])
    if draft is not None:
        draft(buffers, anchors)
    limits = limits - buffers.counts
    allowed = torch.minimum(buffers.state_max_drafts[slots], limits)
    drafts = torch.minimum(buffers.next_counts, allowed).clamp(min=0)
    tokens = torch.cat([anchors.unsqueeze(1), buffers.next_drafts], dim=1)
    # A sequence that does not advance writes back what it has; so does padding, which shares one row.
    buffers.state_tokens.index_copy_(0, slots, torch.where(live.unsqueeze(1), tokens, buffers.token_ids))
    buffers.state_positions.index_copy_(0, slots, buffers.positions + buffers.counts)
    buffers.state_draft_counts.index_copy_(0, slots, torch.where(live, drafts, buffers.draft_counts))
    buffers.state_draft_limits.index_copy_(0, slots, limits)
