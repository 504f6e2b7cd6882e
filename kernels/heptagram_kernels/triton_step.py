"""Triton kernels of the rest of the step: the chain of drafts, the Markov head, the caches and the mask pool."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from heptagram_kernels import ops

_STOPPED, _AT_LIMIT, _NO_CHOICE, _RUNNING = (
    tl.constexpr(value) for value in (ops.STOPPED, ops.AT_LIMIT, ops.NO_CHOICE, ops.RUNNING)
)


@triton.jit
def chain(
    chosen,
    token_ids,
    draft_counts,
    room,
    stop_ids,
    stops,
    out_tokens,
    out_counts,
    out_finished,
    ROWS: tl.constexpr,
):
    """All [B, ROWS] tensors are dense. Grid: (B,)."""
    sequence = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    picked = tl.load(chosen + sequence * ROWS + row)
    drafts = tl.load(draft_counts + sequence)
    draft = tl.load(token_ids + sequence * ROWS + row + 1, mask=row + 1 < ROWS, other=-1)
    confirmed = (draft == picked) & (row < drafts)
    proposed = tl.min(tl.where(confirmed, ROWS, row), axis=0) + 1
    to_gap = tl.min(tl.where(picked < 0, row, ROWS + 1), axis=0)
    to_stop = ROWS + 1
    for place in range(stops):
        at = tl.where(picked == tl.load(stop_ids + place), row + 1, ROWS + 1)
        to_stop = tl.minimum(to_stop, tl.min(at, axis=0))
    left = tl.minimum(tl.load(room + sequence), ROWS + 1).to(tl.int32)
    count = tl.minimum(tl.minimum(proposed, left), tl.minimum(to_stop, to_gap))
    finished = tl.where(count == left, _AT_LIMIT, _RUNNING)
    finished = tl.where((to_gap < proposed) & (count == to_gap), _NO_CHOICE, finished)
    finished = tl.where(count == to_stop, _STOPPED, finished)
    tl.store(out_tokens + sequence * ROWS + row, tl.where(row < count, picked, -1))
    tl.store(out_counts + sequence, count.to(tl.int64))
    tl.store(out_finished + sequence, finished.to(tl.int64))


@triton.jit
def markov(
    base,
    base_stride,
    previous,
    w1,
    w2,
    out,
    batch,
    vocab_size,
    rank,
    PRECISION: tl.constexpr,
    SEQUENCES: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Tiles [SEQUENCES, BLOCK] of the corrected logits; w1, w2 and out are dense. Grid: (blocks, batch tiles).

    A tf32 product of two halves is exact. The ranks are summed chunk by chunk in one order, whatever the batch.
    """
    ids = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    rows = (tl.program_id(1) * SEQUENCES + tl.arange(0, SEQUENCES)).to(tl.int64)
    live, real = rows < batch, ids < vocab_size
    tokens = tl.load(previous + rows, mask=live, other=0)
    total = tl.zeros((SEQUENCES, BLOCK), dtype=tl.float32)
    for start in range(0, rank, CHUNK):
        ranks = start + tl.arange(0, CHUNK)
        left = tl.load(
            w1 + tokens[:, None] * rank + ranks[None, :], mask=live[:, None] & (ranks < rank)[None, :], other=0.0
        )
        right = tl.load(
            w2 + ids[None, :] * rank + ranks[:, None], mask=real[None, :] & (ranks < rank)[:, None], other=0.0
        )
        total += tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision=PRECISION)
    both = live[:, None] & real[None, :]
    total += tl.load(base + rows[:, None] * base_stride + ids[None, :], mask=both, other=0.0).to(tl.float32)
    tl.store(out + rows[:, None] * vocab_size + ids[None, :], total, mask=both)


@triton.jit
def confidence(
    hidden,
    hidden_stride,
    previous,
    w1,
    weight,
    bias,
    out,
    size,
    rank,
    BLOCK: tl.constexpr,
):
    """One number a sequence. Grid: (B,)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + columns
        state = tl.load(hidden + row * hidden_stride + at, mask=at < size, other=0.0).to(tl.float32)
        total += state * tl.load(weight + at, mask=at < size, other=0.0)
    token = tl.load(previous + row)
    for start in range(0, rank, BLOCK):
        at = start + columns
        state = tl.load(w1 + token * rank + at, mask=at < rank, other=0.0).to(tl.float32)
        total += state * tl.load(weight + size + at, mask=at < rank, other=0.0)
    score = tl.sum(total, axis=0) + tl.load(bias)
    tl.store(out + row, 1.0 / (1.0 + tl.exp(-score)))


@triton.jit
def cache_rows(
    cache,
    cache_stride,
    rows,
    tables,
    entries,
    slots,
    positions,
    per_sequence,
    width,
    block_size,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Between the cache and dense ``rows`` [B, per_sequence, width], from ``positions`` on, or from 0 on where rows are
    read. Rows behind the table are skipped. Grid: (B * per_sequence, blocks)."""
    index = tl.program_id(0).to(tl.int64)
    sequence, place = index // per_sequence, index % per_sequence
    if WRITE:
        place += tl.load(positions + sequence)
    inside = place < entries * block_size
    entry = tl.load(slots + sequence) * entries + place // block_size
    at = tl.load(tables + entry, mask=inside, other=0) * block_size + place % block_size
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    kept = columns < tl.where(inside, width, 0)
    stored, given = cache + at * cache_stride + columns, rows + index * width + columns
    if WRITE:
        tl.store(stored, tl.load(given, mask=kept), mask=kept)
    else:
        tl.store(given, tl.load(stored, mask=kept), mask=kept)


@triton.jit
def pool_rows(pool, pool_stride, rows, places, width, BLOCK: tl.constexpr):
    """Dense ``rows`` [N, width] into the pool, but for place 0. Grid: (N, blocks)."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(places + row)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    kept = columns < tl.where(place != 0, width, 0)
    tl.store(pool + place * pool_stride + columns, tl.load(rows + row * width + columns, mask=kept), mask=kept)
