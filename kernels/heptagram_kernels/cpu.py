"""CPU operations on the K7 step's arguments, in numpy; see :mod:`heptagram_kernels.cpu_rows`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels.bitmask import check_arguments, check_values
from heptagram_kernels.cpu_rows import Logits, masked_argmax, raw
from heptagram_kernels.cpu_sampling import token_logprobs, verify_sampled

__all__ = ["token_logprobs", "verify_greedy", "verify_sampled"]


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
    check_values(draft_counts=draft_counts, mask_pool=mask_pool, mask_rows=mask_rows)
    _verify(
        raw(logits),
        token_ids.tolist(),
        draft_counts.tolist(),
        mask_pool.numpy(),
        mask_rows.tolist(),
        out_verified.numpy(),
        out_accepted.numpy(),
    )


def _verify(
    logits: Logits,
    token_ids: list[list[int]],
    draft_counts: list[int],
    pool: NDArray[np.int32],
    mask_rows: list[list[int]],
    verified: NDArray[np.int64],
    accepted: NDArray[np.int64],
) -> None:
    verified.fill(0)
    for sequence, drafts in enumerate(draft_counts):
        for row in range(drafts + 1):
            verified[sequence, row] = masked_argmax(logits[sequence, row], pool[mask_rows[sequence][row]])
        count = 0
        while count < drafts and token_ids[sequence][count + 1] == verified[sequence, count]:
            count += 1
        accepted[sequence] = count
