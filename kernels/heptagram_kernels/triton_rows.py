"""Triton kernels that look at rows of logits under packed masks. None writes the logits.

A row is cut into blocks, so that a few rows fill the device too: one kernel finds the best of each block, a second the
best of those. Every number depends on its own row alone, in an order that the batch cannot change.

A candidate is one int64: the logit's bits, made to order like the number, above the complement of the id. The largest
one is the best token, of equals the lowest id, and ``max`` is all that a reduction needs.
"""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(-(2**63) + 1)
NOT_A_NUMBER = tl.constexpr(0x7FFFFFFF << 32)  # above every number's


@triton.jit
def _allowed(pool, pool_stride, place, ids, real_tokens, vocab_size):
    """Which ids a mask allows. Row 0 is known without being read, and row -1 allows nothing."""
    words = tl.load(pool + place * pool_stride + (ids >> 5), mask=ids < tl.where(place <= 0, 0, vocab_size), other=0)
    listed = ((words >> (ids & 31)) & 1) != 0
    return (ids < tl.where(place == 0, real_tokens, 0)) | listed


@triton.jit
def _keys(values, ids):
    values = tl.where(values == 0.0, 0.0, values)  # the negative zero equals the other
    bits = values.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.to(tl.int64) << 32) | (ids ^ 0x7FFFFFFF).to(tl.int64)


@triton.jit
def best_of_blocks(
    logits,
    row_stride,
    column_stride,
    pool,
    pool_stride,
    mask_rows,
    partial,
    real_tokens,
    vocab_size,
    COUNT: tl.constexpr,
    NAN_WINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``partial`` int64 [N, blocks, COUNT]: the best candidates of each block. Grid: (N, blocks)."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    allowed = _allowed(pool, pool_stride, tl.load(mask_rows + row), ids, real_tokens, vocab_size)
    at = logits + row * row_stride + ids.to(tl.int64) * column_stride
    values = tl.load(at, mask=allowed, other=float("-inf")).to(tl.float32)
    keys = tl.where(values > float("-inf"), _keys(values, ids), NOTHING)
    if NAN_WINS:
        keys = tl.where(values != values, NOT_A_NUMBER, keys)
    into = partial + (row * tl.num_programs(1) + block) * COUNT
    for place in tl.static_range(COUNT):
        best = tl.max(keys, axis=0)
        tl.store(into + place, best)
        keys = tl.where(keys == best, NOTHING, keys)


@triton.jit
def best_of_rows(
    partial,
    logits,
    row_stride,
    column_stride,
    out_ids,
    out_logits,
    candidates,
    COUNT: tl.constexpr,
    WITH_LOGITS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """The best of ``partial`` int64 [N, candidates], as ids and as logits, both [N, COUNT]. Grid: (N,)."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, SIZE)
    keys = tl.load(partial + row * candidates + places, mask=places < candidates, other=NOTHING)
    for place in tl.static_range(COUNT):
        best = tl.max(keys, axis=0)
        found = (best != NOTHING) & (best < NOT_A_NUMBER)
        token = tl.where(found, (best & 0x7FFFFFFF) ^ 0x7FFFFFFF, -1)
        tl.store(out_ids + row * COUNT + place, token)
        if WITH_LOGITS:
            at = logits + row * row_stride + token * column_stride
            value = tl.load(at, mask=found, other=float("-inf")).to(tl.float32)
            tl.store(out_logits + row * COUNT + place, value)
        keys = tl.where(keys == best, NOTHING, keys)
