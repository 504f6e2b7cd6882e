"""Attention over block tables, plugged into transformers' own model code through its attention interface.

A forward flattens its sequences into one batch row [1, T]; linear layers see all T rows at once. Attention takes the
rows of one sequence at a time, over that sequence's blocks and its own number of tiles. So neither the number of
sequences in a step nor their lengths can change the shape, and with it the rounding, of another one's attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AttentionInterface

from heptagram_backend.targets.paged_cache import PagedCache, Piece, Tiles, Write

NAME: Final = "heptagram_paged"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``first .. first + rows`` of T belong to one sequence; ``writes`` says where they go in the cache.

    ``pieces`` are its keys, whole tiles. ``bias`` [1, groups * rows, keys] holds 0 where a row may look and -inf where
    it may not.
    """

    first: int
    rows: int
    writes: tuple[Write, ...]
    pieces: tuple[Piece, ...]
    bias: Tensor


@dataclass(frozen=True, slots=True)
class Spans:
    """All sequences of one forward, and the cache that they write."""

    cache: PagedCache
    spans: tuple[Span, ...]


def causal_bias(*, position: int, rows: int, keys: int, groups: int, dtype: torch.dtype) -> Tensor:
    """[1, groups * rows, keys]: row ``r`` sees the keys ``0 .. position + r``; once for each query head of a group."""
    bias = torch.full((rows, keys), -math.inf, dtype=dtype).triu_(position + 1)
    return bias.repeat(groups, 1).unsqueeze(0)


def paged_attention(
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
    layer: int = module.layer_idx  # type: ignore[assignment]
    output = query.new_empty((1, total, heads, head_dim))
    for span in spans.spans:
        rows = slice(span.first, span.first + span.rows)
        _store(spans.cache.layer(layer), key[0, :, rows], value[0, :, rows], span.writes)
        # Query heads that share a key head stand below each other, so keys and values are never repeated.
        grouped = query[0, :, rows].reshape(kv_heads, -1, head_dim)
        pieces = [piece.read(layer) for piece in span.pieces]
        scores = _scores(grouped, pieces, span.bias, scaling)
        # The softmax accumulates in fp32 and rounds once.
        mixed = _mix(torch.softmax(scores, dim=-1), pieces)
        output[0, rows] = mixed.view(heads, span.rows, head_dim).transpose(0, 1)
    return output, None


def _store(cache: tuple[Tensor, Tensor], key: Tensor, value: Tensor, writes: tuple[Write, ...]) -> None:
    """Write new rows, ``key`` and ``value`` [KVH, rows, D].

    subtle: 0 x NaN is NaN, and a tile may end in another sequence's blocks. So what is no number is stored as 0; the
    sequence itself has it in its hidden states all the same, which is where it is noticed.
    """
    keys, values = cache
    for write in writes:
        source, place = slice(write.source, write.source + write.count), slice(write.row, write.row + write.count)
        torch.nan_to_num(key[:, source].transpose(1, 2), 0.0, 0.0, 0.0, out=keys[:, :, place])
        torch.nan_to_num(value[:, source], 0.0, 0.0, 0.0, out=values[:, place])


def _scores(grouped: Tensor, pieces: list[Tiles], bias: Tensor, scaling: float) -> Tensor:
    """[KVH, groups * rows, keys], masked."""
    if len(pieces) == 1:
        return torch.baddbmm(bias, grouped, pieces[0].keys, alpha=scaling)
    biases = torch.split(bias, [piece.keys.shape[2] for piece in pieces], dim=2)
    parts = zip(biases, pieces, strict=True)
    return torch.cat([torch.baddbmm(part, grouped, piece.keys, alpha=scaling) for part, piece in parts], dim=2)


def _mix(weights: Tensor, pieces: list[Tiles]) -> Tensor:
    """``weights`` [KVH, rows, keys] times the values of ``pieces``, a tile of keys at a time.

    subtle: a matrix library cuts a long sum where its own heuristics say, so the whole product rounds differently at
    another number of keys (fp32: 256 and 512; bf16: 1,024 and 1,280). Tiles of one shape cut it always at the same
    places, and a tile that is masked whole adds exact zeros.
    """
    first, *others = (tile for piece in pieces for tile in piece.values)
    size = first.shape[1]
    mixed = torch.bmm(weights[:, :, :size], first)
    for place, tile in enumerate(others, start=1):
        mixed = torch.baddbmm(mixed, weights[:, :, place * size : (place + 1) * size], tile)
    return mixed


AttentionInterface.register(NAME, paged_attention)
