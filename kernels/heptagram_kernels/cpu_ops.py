"""The operations of :class:`heptagram_kernels.ops.Ops` on the CPU.

Whatever looks at a vocabulary does so in numpy, on allowed tokens only where they are few; the rest is plain torch.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels import cpu_rows
from heptagram_kernels.bitmask import NO_TOKEN, allowed_ids
from heptagram_kernels.cpu_draw import Ids, Numbers, largest
from heptagram_kernels.cpu_rows import Logits, raw
from heptagram_kernels.noise import gumbel, stream, uniforms
from heptagram_kernels.reference_ops import (
    draft_confidence,
    kv_gather,
    kv_write,
    markov_logits,
    scatter_rows,
    verify_chain,
)

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

Words = NDArray[np.int32]


def masked_argmax(logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor) -> None:
    rows, pool, chosen = raw(logits), mask_pool.numpy(), out.numpy()
    for row, place in enumerate(mask_rows.tolist()):
        chosen[row] = _argmax(rows[row], pool[place], place, real_tokens)


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
    rows, pool, chosen = raw(logits), mask_pool.numpy(), out.numpy()
    keys = zip(mask_rows.tolist(), seeds.tolist(), positions.tolist(), temperature.tolist(), strict=True)
    for row, (place, seed, position, warmth) in enumerate(keys):
        best = _argmax(rows[row], pool[place], place, real_tokens)
        if best >= 0 and not math.isfinite(top := float(rows[row, best : best + 1].floats()[0])):
            best = NO_TOKEN
        elif best >= 0 and warmth > 0:
            ids, scores = _allowed(rows[row], pool[place], place, real_tokens)
            with np.errstate(over="ignore"):
                scores = (scores - top) / warmth
            best = int(ids[(scores + gumbel(uniforms(stream(seed, position), ids))).argmax()])
        chosen[row] = best


def top_candidates(
    logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out_ids: Tensor, out_logits: Tensor
) -> None:
    out_ids.fill_(NO_TOKEN)
    out_logits.fill_(-math.inf)
    rows, pool, best_ids, best_logits = raw(logits), mask_pool.numpy(), out_ids.numpy(), out_logits.numpy()
    for row, place in enumerate(mask_rows.tolist()):
        ids, numbers = _allowed(rows[row], pool[place], place, real_tokens)
        usable = numbers > -math.inf  # false for NaN, too
        ids, numbers = ids[usable], numbers[usable]
        best = largest(numbers, min(out_ids.shape[1], ids.size))
        best = best[np.argsort(-numbers[best], kind="stable")]
        best_ids[row, : best.size] = ids[best]
        best_logits[row, : best.size] = numbers[best]


def _argmax(row: Logits, words: Words, place: int, real_tokens: int) -> int:
    return cpu_rows.argmax(row[:real_tokens]) if place == 0 else cpu_rows.masked_argmax(row, words)


def _allowed(row: Logits, words: Words, place: int, real_tokens: int) -> tuple[Ids, Numbers]:
    """Ids of the allowed tokens, ascending, and their logits."""
    if place == 0:
        return np.arange(real_tokens), row[:real_tokens].floats().astype(np.float64)
    ids = allowed_ids(words, row.bits.size)
    return ids, row[ids].floats().astype(np.float64)
