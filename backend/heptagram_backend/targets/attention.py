"""Attention over slots: the rows of one sequence at a time, over that sequence's slot and its own key bucket.

So neither the number of sequences in a step nor their lengths can change the shape, and with it the rounding, of
another one's attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_backend.targets.slot_cache import SlotCache


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one sequence in a forward: ``first .. first + rows`` of T stand at ``position .. position + rows``.

    ``keys`` is the bucket. ``bias`` [1, rows * group, keys - position] holds 0 where a row may look and -inf where it
    may not; every key before ``position`` is seen.
    """

    slot: int
    position: int
    first: int
    rows: int
    keys: int
    bias: Tensor


@dataclass(frozen=True, slots=True)
class Spans:
    """All sequences of one forward, the cache that they write, and the keys that one sum runs over."""

    cache: SlotCache
    spans: tuple[Span, ...]
    tile: int


def causal_bias(*, rows: int, keys: int, group: int, dtype: torch.dtype) -> Tensor:
    """[1, rows * group, keys]: row ``r`` sees the keys ``0 .. r``; once for each query head of a group."""
    bias = torch.full((rows, keys), -math.inf, dtype=dtype).triu_(1)
    return bias.repeat_interleave(group, 0).unsqueeze(0)


def attend(spans: Spans, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Write the new rows into the cache and attend.

    Args:
        query: [T, H, D], rotated and scaled; key: [T, KVH, D], rotated; value: [T, KVH, D].

    Returns:
        [T, H * D].
    """
    total, heads, head_dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    output = query.new_empty((total, kv_heads, group, head_dim))
    query = query.reshape(total, kv_heads, group, head_dim)
    for span in spans.spans:
        rows = slice(span.first, span.first + span.rows)
        places = slice(span.position, span.position + span.rows)
        keys, values = spans.cache.slot(layer, span.slot)
        keys[:, :, places] = key[rows].permute(1, 2, 0)
        values[:, places] = value[rows].transpose(0, 1)
        # Query heads that share a key head stand below each other, so keys and values are never repeated.
        grouped = query[rows].transpose(0, 1).reshape(kv_heads, -1, head_dim)
        scores = torch.bmm(grouped, keys[:, :, : span.keys])
        scores[:, :, span.position :] += span.bias
        # The softmax accumulates in fp32 and rounds once.
        mixed = _mix(torch.softmax(scores, dim=-1), values, tile=spans.tile)
        output[rows] = mixed.view(kv_heads, span.rows, group, head_dim).transpose(0, 1)
    return output.view(total, -1)


def _mix(weights: Tensor, values: Tensor, *, tile: int) -> Tensor:
    """``weights`` [heads, rows, keys] times ``values`` [heads, length, head_dim], ``tile`` keys at a time.

    subtle: a matrix library cuts a long sum where its own heuristics say, so the whole product rounds differently at
    another bucket (fp32: 256 and 512 keys; bf16: 1,024 and 1,280). Tiles of one shape cut it always at the same places,
    and a tile that is masked whole adds exact zeros.
    """
    mixed = torch.bmm(weights[:, :, :tile], values[:, :tile])
    for first in range(tile, weights.shape[2], tile):
        keys = slice(first, first + tile)
        mixed = torch.baddbmm(mixed, weights[:, :, keys], values[:, keys])
    return mixed
