"""The operations of :class:`heptagram_kernels.ops.Ops` on CUDA: launches of the Triton kernels.

No launch reads a value on the host, so all of them can be captured; temporaries come from the graph's memory pool.
With TRITON_INTERPRET=1 in the environment before triton is imported, they run on CPU tensors.
"""

from __future__ import annotations

from typing import Final

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from heptagram_kernels import triton_rows, triton_sample, triton_step
from heptagram_kernels.layout import ROWS
from heptagram_kernels.torch_noise import streams

_BLOCK: Final = 4096
_DRAW_BLOCK: Final = 1024  # float64 noise takes many registers
_COPY_BLOCK: Final = 1024
_SEQUENCES, _VOCAB, _RANKS = 16, 64, 32
"""Of a tile of the Markov head; tensor cores take no fewer than 16 rows."""


def masked_argmax(logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor) -> None:
    _best(logits, mask_pool, mask_rows, real_tokens, out.unsqueeze(1), None)


def top_candidates(
    logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out_ids: Tensor, out_logits: Tensor
) -> None:
    _best(logits, mask_pool, mask_rows, real_tokens, out_ids, out_logits)


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
    rows, width = logits.shape
    best = torch.empty(rows, dtype=torch.int64, device=logits.device)
    masked_argmax(logits, mask_pool, mask_rows, real_tokens, best)
    blocks = triton.cdiv(width, _DRAW_BLOCK)
    scores = torch.empty((rows, blocks), dtype=torch.float64, device=logits.device)
    tokens = torch.empty((rows, blocks), dtype=torch.int64, device=logits.device)
    temperature = temperature.contiguous()
    triton_sample.draw_of_blocks[(rows, blocks)](
        logits,
        *logits.stride(),
        mask_pool.contiguous(),
        mask_pool.shape[1],
        mask_rows.contiguous(),
        best,
        streams(seeds, positions),
        temperature,
        scores,
        tokens,
        real_tokens,
        width,
        BLOCK=_DRAW_BLOCK,
    )
    dense = torch.empty_like(best)
    triton_sample.draw_of_rows[(rows,)](
        logits,
        *logits.stride(),
        best,
        temperature,
        scores,
        tokens,
        dense,
        blocks,
        SIZE=triton.next_power_of_2(blocks),
    )
    out.copy_(dense)


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
    batch = chosen.shape[0]
    outs = (out_tokens, out_counts, out_finished)
    dense = [torch.empty(out.shape, dtype=out.dtype, device=out.device) for out in outs]
    triton_step.chain[(batch,)](
        chosen.contiguous(),
        token_ids.contiguous(),
        draft_counts.contiguous(),
        room.contiguous(),
        stop_ids.contiguous(),
        stop_ids.numel(),
        *dense,
        ROWS=ROWS,
    )
    for out, result in zip(outs, dense, strict=True):
        out.copy_(result)


def markov_logits(base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor, out: Tensor) -> None:
    (batch, width), rank = base.shape, w1.shape[1]
    dense = out if out.is_contiguous() else torch.empty_like(base, dtype=out.dtype)
    base = base if base.stride(1) == 1 else base.contiguous()
    triton_step.markov[(triton.cdiv(width, _VOCAB), triton.cdiv(batch, _SEQUENCES))](
        base,
        base.stride(0),
        previous.contiguous(),
        w1.contiguous(),
        w2.contiguous(),
        dense,
        batch,
        width,
        rank,
        PRECISION="ieee" if w1.dtype == torch.float32 else "tf32",
        SEQUENCES=_SEQUENCES,
        BLOCK=_VOCAB,
        CHUNK=_RANKS,
    )
    if dense is not out:
        out.copy_(dense)


def draft_confidence(hidden: Tensor, previous: Tensor, w1: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    hidden = hidden if hidden.stride(1) == 1 else hidden.contiguous()
    dense = torch.empty(out.shape, dtype=out.dtype, device=out.device)
    triton_step.confidence[(hidden.shape[0],)](
        hidden,
        hidden.stride(0),
        previous.contiguous(),
        w1.contiguous(),
        weight.contiguous(),
        bias,
        dense,
        hidden.shape[1],
        w1.shape[1],
        BLOCK=_COPY_BLOCK,
    )
    out.copy_(dense)


def kv_write(
    cache: Tensor, rows: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor, block_size: int
) -> None:
    _cache_rows(cache, rows.contiguous(), block_tables, slots, positions.contiguous(), block_size, write=True)


def kv_gather(cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, out: Tensor) -> None:
    dense = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    _cache_rows(cache, dense, block_tables, slots, slots, block_size, write=False)
    if dense is not out:
        out.copy_(dense)


def scatter_rows(pool: Tensor, rows: Tensor, places: Tensor) -> None:
    count, width = rows.shape
    if count:
        triton_step.pool_rows[(count, triton.cdiv(width, _COPY_BLOCK))](
            pool, pool.stride(0), rows.contiguous(), places.contiguous(), width, BLOCK=_COPY_BLOCK
        )


def _best(
    logits: Tensor, pool: Tensor, mask_rows: Tensor, real_tokens: int, out_ids: Tensor, out_logits: Tensor | None
) -> None:
    (rows, width), count = logits.shape, out_ids.shape[1]
    blocks = triton.cdiv(width, _BLOCK)
    partial = torch.empty((rows, blocks * count), dtype=torch.int64, device=logits.device)
    triton_rows.best_of_blocks[(rows, blocks)](
        logits,
        *logits.stride(),
        pool.contiguous(),
        pool.shape[1],
        mask_rows.contiguous(),
        partial,
        real_tokens,
        width,
        COUNT=count,
        NAN_WINS=out_logits is None,
        BLOCK=_BLOCK,
    )
    ids = torch.empty((rows, count), dtype=torch.int64, device=logits.device)
    values = torch.empty((rows, count), dtype=torch.float32, device=logits.device)
    triton_rows.best_of_rows[(rows,)](
        partial,
        logits,
        *logits.stride(),
        ids,
        values,
        blocks * count,
        COUNT=count,
        WITH_LOGITS=out_logits is not None,
        SIZE=triton.next_power_of_2(blocks * count),
    )
    out_ids.copy_(ids)
    if out_logits is not None:
        out_logits.copy_(values)


def _cache_rows(
    cache: Tensor,
    rows: Tensor,
    block_tables: Tensor,
    slots: Tensor,
    positions: Tensor,
    block_size: int,
    *,
    write: bool,
) -> None:
    batch, per_sequence, width = rows.shape
    triton_step.cache_rows[(batch * per_sequence, triton.cdiv(width, _COPY_BLOCK))](
        cache,
        cache.stride(0),
        rows,
        block_tables.contiguous(),
        block_tables.shape[1],
        slots.contiguous(),
        positions,
        per_sequence,
        width,
        block_size,
        WRITE=write,
        BLOCK=_COPY_BLOCK,
    )
