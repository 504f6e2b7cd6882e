"""The operations of :class:`heptagram_kernels.ops.Ops` on the CPU.

Whatever looks at a vocabulary does so in numpy, on allowed tokens only where they are few, and a chain of eight tokens
is followed in Python, which is done before torch has started; the rest is plain torch.
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
from heptagram_kernels.ops import AT_LIMIT, NO_CHOICE, RUNNING, STOPPED
from heptagram_kernels.reference_ops import (
    draft_confidence,
    kv_gather,
    kv_write,
    markov_logits,
    scatter_rows,
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
    real = rows[:, :real_tokens]
    chosen.fill(NO_TOKEN)
    for row, place in enumerate(mask_rows.tolist()):
        if place == 0:
            chosen[row] = cpu_rows.argmax(real[row])
        elif place > 0:
            chosen[row] = cpu_rows.masked_argmax(rows[row], pool[place])


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
    stops = frozenset(stop_ids.tolist())
    chains = zip(chosen.tolist(), token_ids.tolist(), draft_counts.tolist(), room.tolist(), strict=True)
    tokens, counts, why = out_tokens.numpy(), out_counts.numpy(), out_finished.numpy()
    tokens[:] = chosen.numpy()
    for sequence, chain in enumerate(chains):
        counts[sequence], why[sequence] = count, _ = _walk(*chain, stops)
        tokens[sequence, count:] = NO_TOKEN


def _walk(chosen: list[int], drafted: list[int], drafts: int, room: int, stops: frozenset[int]) -> tuple[int, int]:
    """How many tokens are committed, and why the sequence ends."""
    count, finished = 0, RUNNING
    while finished == RUNNING:
        if chosen[count] < 0:
            finished = NO_CHOICE
        elif count == room:
            finished = AT_LIMIT
        else:
            token, count = chosen[count], count + 1
            if token in stops:
                finished = STOPPED
            elif count > drafts or drafted[count] != token:
                finished = AT_LIMIT if count == room else RUNNING
                break
    return count, finished


def _argmax(row: Logits, words: Words, place: int, real_tokens: int) -> int:
    if place < 0:
        return NO_TOKEN
    return cpu_rows.argmax(row[:real_tokens]) if place == 0 else cpu_rows.masked_argmax(row, words)


def _allowed(row: Logits, words: Words, place: int, real_tokens: int) -> tuple[Ids, Numbers]:
    """Ids of the allowed tokens, ascending, and their logits."""
    if place < 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    if place == 0:
        return np.arange(real_tokens), row[:real_tokens].floats().astype(np.float64)
    ids = allowed_ids(words, row.bits.size)
    return ids, row[ids].floats().astype(np.float64)
