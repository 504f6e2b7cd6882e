"""Packed mask rows, and what verification under them takes.

A row holds one bit a token: token ``i`` is allowed where bit ``i % 32`` of int32 word ``i // 32`` is set. Bits behind
the width V are ignored.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels.layout import K7_LAYOUT, Bindings, words_for

NO_TOKEN = -1
"""Verified token of a row in which nothing can be chosen."""


class VerifyGreedy(Protocol):
    """Masked argmax of each live row, and how many drafts it confirms.

    Row ``r`` of a sequence gives the token that follows its input ``token_ids[:, r]``. The draft
    ``token_ids[:, r + 1]`` is accepted when it equals ``verified[:, r]`` and all drafts before it were accepted. Only
    the rows ``0 .. draft_counts`` live; what the others hold does not matter.

    Args:
        logits: [B, 8, V], bfloat16 or float32.
        token_ids: int64 [B, 8], the anchor and the drafts.
        draft_counts: int64 [B], valid drafts of each sequence, 0 to 7.
        mask_pool: int32 [P, W], packed rows; W = ceil(V / 32).
        mask_rows: int64 [B, 8], each row's index into the pool.
        out_verified: int64 [B, 8], written: the argmax under the row's mask, the lowest id on a tie; -1 where no
            token can be chosen (nothing is allowed, an allowed logit is NaN, or all of them are -inf); 0 in dead rows.
        out_accepted: int64 [B], written: accepted drafts, 0 to ``draft_counts``.

    Raises:
        ValueError: a dtype, shape or value does not fit; the message names the argument.
    """

    def __call__(
        self,
        *,
        logits: Tensor,
        token_ids: Tensor,
        draft_counts: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        out_verified: Tensor,
        out_accepted: Tensor,
    ) -> None: ...


def pack(allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Pack one row: bool [V] to int32 [W]."""
    bits = np.zeros(words_for(allowed.size) * 32, dtype=np.uint8)
    bits[: allowed.size] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)


def unpack(words: NDArray[np.int32], vocab_size: int) -> NDArray[np.bool_]:
    """Unpack one row: int32 [W] to bool [V]."""
    bits = np.unpackbits(words.view(np.uint8), count=vocab_size, bitorder="little")
    return bits.view(np.bool_)


def allowed_ids(words: NDArray[np.int32], vocab_size: int) -> NDArray[np.int64]:
    """Ids of the allowed tokens of one row, int32 [W], ascending."""
    used = np.flatnonzero(words)
    if used.size * 2 > words.size:  # to skip empty words takes longer than to read them
        return np.flatnonzero(unpack(words, vocab_size))
    bits = np.flatnonzero(np.unpackbits(words[used].view(np.uint8), bitorder="little"))
    ids: NDArray[np.int64] = used[bits >> 5] * 32 + (bits & 31)
    return ids if not ids.size or ids[-1] < vocab_size else ids[ids < vocab_size]


def check_arguments(
    *,
    logits: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    out_verified: Tensor,
    out_accepted: Tensor,
) -> None:
    """Check dtypes and shapes against the K7 layout; no values are read.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    if logits.dim() != 3 or mask_pool.dim() != 2:
        raise ValueError(
            f"logits: got {list(logits.shape)}, need [B, 8, V]; mask_pool: got {list(mask_pool.shape)}, need [P, W]"
        )
    tensors = {
        "token_ids": token_ids,
        "draft_counts": draft_counts,
        "mask_pool": mask_pool,
        "mask_rows": mask_rows,
        "logits": logits,
        "verified": out_verified,
        "counts": out_accepted,
    }
    K7_LAYOUT.validate(tensors, Bindings(logits.shape[0], logits.shape[2], mask_pool.shape[0]))
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) > 1:
        raise ValueError(f"arguments lie on {sorted(map(str, devices))}; move all of them to one device")


def check_values(*, draft_counts: Tensor, mask_pool: Tensor, mask_rows: Tensor) -> None:
    """Check the host-written values. Cheap on the CPU; a device would have to wait for them.

    Raises:
        ValueError: naming the argument and its range.
    """
    for name, tensor, end in (("draft_counts", draft_counts, 8), ("mask_rows", mask_rows, mask_pool.shape[0])):
        if tensor.numel() and not 0 <= int(torch.min(tensor)) <= int(torch.max(tensor)) < end:
            raise ValueError(f"{name}: holds {tensor.tolist()}; every value must be 0 to {end - 1}")
