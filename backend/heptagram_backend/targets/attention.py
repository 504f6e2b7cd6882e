"""Attention over slots, plugged into transformers' own model code through its attention interface.

A forward flattens its sequences into one batch row [1, T]; linear layers see all T rows at once. Attention takes the
rows of one sequence at a time, over that sequence's slot and its own key bucket. So neither the number of sequences in
a step nor their lengths can change the shape, and with it the rounding, of another one's attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AttentionInterface

from heptagram_backend.targets.slot_cache import SlotCache

NAME: Final = "heptagram_slots"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one sequence in a forward: ``first .. first + rows`` of T stand at ``position .. position + rows``.

    ``bias`` [1, groups * rows, keys] holds 0 where a row may look and -inf where it may not; ``keys`` is the bucket.
    """

    slot: int
    position: int
    first: int
    rows: int
    keys: int
    bias: Tensor


@dataclass(frozen=True, slots=True)
class Spans:
    """All sequences of one forward, the cache that they write, and the key bucket."""

    cache: SlotCache
    spans: tuple[Span, ...]
    tile: int


def causal_bias(*, position: int, rows: int, keys: int, groups: int, dtype: torch.dtype) -> Tensor:
    """[1, groups * rows, keys]: row ``r`` sees the keys ``0 .. position + r``; once for each query head of a group."""
    bias = torch.full((rows, keys), -math.inf, dtype=dtype).triu_(position + 1)
    return bias.repeat(groups, 1).unsqueeze(0)


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    spans: Spans,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Write the new rows into the cache and attend.

    Args:
        query: [1, H, T, D]; key, value: [1, KVH, T, D], rotated.
        attention_mask: always None; no mask function is registered under our name, so transformers builds none.

    Returns:
        [1, T, H, D].
    """
    assert attention_mask is None
    assert unused.get("sliding_window") is None
    heads, total, head_dim = query.shape[1:]
    kv_heads = key.shape[1]
    output = query.new_empty((1, total, heads, head_dim))
    for span in spans.spans:
        rows = slice(span.first, span.first + span.rows)
        places = slice(span.position, span.position + span.rows)
        keys, values = spans.cache.slot(module.layer_idx, span.slot)  # type: ignore[arg-type]
        keys[:, :, places] = key[0, :, rows].transpose(1, 2)
        values[:, places] = value[0, :, rows]
        # Query heads that share a key head stand below each other, so keys and values are never repeated.
        grouped = query[0, :, rows].reshape(kv_heads, -1, head_dim)
        scores = torch.baddbmm(span.bias, grouped, keys[:, :, : span.keys], alpha=scaling)
        # The softmax accumulates in fp32 and rounds once.
        mixed = _mix(torch.softmax(scores, dim=-1), values, tile=spans.tile)
        output[0, rows] = mixed.view(heads, span.rows, head_dim).transpose(0, 1)
    return output, None


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


AttentionInterface.register(NAME, slot_attention)
