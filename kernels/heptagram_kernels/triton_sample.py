"""Triton kernels of the draw: Gumbel-max with the noise of :mod:`heptagram_kernels.noise`, in float64."""

# ruff: noqa: N803
# mypy: disable-error-code="import-untyped,untyped-decorator,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from heptagram_kernels import noise
from heptagram_kernels.triton_rows import _allowed

_GAMMA = tl.constexpr(noise.GAMMA)
_FIRST, _SECOND = (tl.constexpr(value) for value in noise.MULTIPLIERS)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = (tl.constexpr(value) for value in noise.SHIFTS)
_DROPPED = tl.constexpr(64 - noise.UNIFORM_BITS)
_UNIT = tl.constexpr(2.0**-noise.UNIFORM_BITS)
_NO_ID = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _gumbel(start, ids):
    state = (ids + 1).to(tl.uint64) * _GAMMA + start
    state = (state ^ (state >> _SHIFT_1)) * _FIRST
    state = (state ^ (state >> _SHIFT_2)) * _SECOND
    state = state ^ (state >> _SHIFT_3)
    uniform = ((state >> _DROPPED).to(tl.float64) + 0.5) * _UNIT
    # ``1 - uniform`` is exact: uniforms are odd multiples of 2^-53.
    return -tl.log(-tl.log(1.0 - uniform))


@triton.jit
def draw_of_blocks(
    logits,
    row_stride,
    column_stride,
    pool,
    pool_stride,
    mask_rows,
    best,
    starts,
    temperature,
    scores,
    tokens,
    real_tokens,
    vocab_size,
    BLOCK: tl.constexpr,
):
    """Per block the largest noisy score, float64 [N, blocks], and its lowest id, int64. Grid: (N, blocks)."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    into = row * tl.num_programs(1) + block
    top_id, warmth = tl.load(best + row), tl.load(temperature + row)
    drawn = (top_id >= 0) & (warmth > 0)
    top = tl.load(logits + row * row_stride + top_id * column_stride, mask=drawn, other=0.0).to(tl.float64)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    real_tokens, vocab_size = tl.where(drawn, real_tokens, 0), tl.where(drawn, vocab_size, 0)
    allowed = _allowed(pool, pool_stride, tl.load(mask_rows + row), ids, real_tokens, vocab_size)
    at = logits + row * row_stride + ids.to(tl.int64) * column_stride
    values = tl.load(at, mask=allowed, other=float("-inf")).to(tl.float64)
    start = tl.load(starts + row).to(tl.uint64, bitcast=True)
    noisy = (values - top) / tl.where(drawn, warmth, 1.0) + _gumbel(start, ids)
    noisy = tl.where(values > float("-inf"), noisy, float("-inf"))
    largest = tl.max(noisy, axis=0)
    tl.store(scores + into, largest)
    tl.store(tokens + into, tl.min(tl.where(noisy == largest, ids, _NO_ID), axis=0).to(tl.int64))


@triton.jit
def draw_of_rows(
    logits,
    row_stride,
    column_stride,
    best,
    temperature,
    scores,
    tokens,
    out,
    blocks,
    SIZE: tl.constexpr,
):
    """The largest score of each row's blocks; its argmax where it is not drawn. Grid: (N,)."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, SIZE)
    inside = places < blocks
    values = tl.load(scores + row * blocks + places, mask=inside, other=float("-inf"))
    ids = tl.load(tokens + row * blocks + places, mask=inside, other=_NO_ID)
    token = tl.min(tl.where(values == tl.max(values, axis=0), ids, _NO_ID), axis=0)
    top_id = tl.load(best + row)
    top = tl.load(logits + row * row_stride + top_id * column_stride, mask=top_id >= 0, other=0.0).to(tl.float32)
    token = tl.where(tl.load(temperature + row) > 0, token, top_id)
    tl.store(out + row, tl.where((top_id >= 0) & (top < float("inf")), token, -1))
