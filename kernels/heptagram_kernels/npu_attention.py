"""Attention of a step's rows over a paged cache, two ways. Both see the same keys: row ``r`` those up to its position.

Sizes: B sequences, R rows of each, H heads, G key and value heads, D numbers of a head; the cache [C, G * D] and the
block tables [S, M] are those of :meth:`heptagram_kernels.ops.Ops.kv_write`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from heptagram_kernels.npu_ops import kv_gather

_COMPRESSED: Final = 2048
"""Side of the one triangular mask that fused attention takes for all lengths (``sparse_mode`` 3)."""
_MAX_ROWS: Final = 16
"""Of one sequence in a decode call of fused attention."""


class Attention(Protocol):
    """Scaled dot-product attention.

    Args:
        query: [B, R, H, D].
        keys, values: caches [C, G * D] of its dtype; the step's own rows were written before.
        block_tables: int64 [S, M]. slots, positions: int64 [B], of the first row.

    Returns:
        [B, R, H, D], of the query's dtype.
    """

    def __call__(
        self, *, query: Tensor, keys: Tensor, values: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor
    ) -> Tensor: ...


class MaskedAttention:
    """The first ``context`` keys of every sequence, behind a mask made from its positions: no host integer at all.

    A recording holds for every length up to ``context``; it costs attention over all of them. A row's answer does not
    depend on what the keys behind it hold, as long as they are finite.
    """

    def __init__(self, *, context: int, block_size: int, key_heads: int) -> None:
        if context % block_size:
            raise ValueError(f"context: {context} is no multiple of the block size {block_size}")
        self._context = context
        self._block_size = block_size
        self._key_heads = key_heads

    def __call__(
        self, *, query: Tensor, keys: Tensor, values: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor
    ) -> Tensor:
        batch, rows, heads, width = query.shape
        groups = heads // self._key_heads
        key, value = (self._gather(cache, block_tables, slots) for cache in (keys, values))  # [B, G, T, D]
        grouped = query.view(batch, rows, self._key_heads, groups, width).permute(0, 2, 3, 1, 4)
        grouped = grouped.reshape(batch * self._key_heads, groups * rows, width)
        scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).float() * (1 / math.sqrt(width))
        hidden = self._hidden(positions, rows).view(batch, 1, 1, rows, self._context)
        scores = scores.view(batch, self._key_heads, groups, rows, self._context).masked_fill(hidden, -math.inf)
        weights = torch.softmax(scores, dim=-1).to(query.dtype).view(batch * self._key_heads, groups * rows, -1)
        mixed = torch.bmm(weights, value.flatten(0, 1)).view(batch, self._key_heads, groups, rows, width)
        return mixed.permute(0, 3, 1, 2, 4).reshape(query.shape)

    def _gather(self, cache: Tensor, block_tables: Tensor, slots: Tensor) -> Tensor:
        taken = cache.new_empty((len(slots), self._context, cache.shape[1]))
        kv_gather(cache, block_tables, slots, self._block_size, taken)
        return taken.view(len(slots), self._context, self._key_heads, -1).transpose(1, 2).contiguous()

    def _hidden(self, positions: Tensor, rows: int) -> Tensor:
        """Bool [B, R, T]: keys behind the row's own."""
        seen = positions.unsqueeze(1) + torch.arange(rows, device=positions.device)
        return torch.arange(self._context, device=positions.device) > seen.unsqueeze(2)


class FusedAttention:
    """Ascend's fused attention reads the blocks where they lie, and stops at each sequence's length.

    The lengths are host integers: :meth:`host_arguments` is what :class:`heptagram_kernels.npu_graph.NpuGraph` sets
    before a replay. Padding counts as a sequence of the step's rows, because the last query length must equal the
    number of query rows.
    """

    def __init__(self, *, block_size: int, key_heads: int, batch: int, rows: int, device: torch.device) -> None:
        if block_size % 16:
            raise ValueError(f"block_size: got {block_size}; fused attention takes multiples of 16")
        if rows > _MAX_ROWS:
            raise ValueError(f"rows: got {rows}; fused attention takes at most {_MAX_ROWS} of a sequence")
        self._block_size = block_size
        self._key_heads = key_heads
        self._rows = rows
        self._query_lengths = [rows * (sequence + 1) for sequence in range(batch)]
        self._key_lengths = [rows] * batch
        self._mask = torch.ones((_COMPRESSED, _COMPRESSED), dtype=torch.int8, device=device).triu_(1)

    def set_positions(self, positions: Sequence[int]) -> None:
        """Positions of the sequences' first rows in the step to come; the rest of the batch is padding."""
        padding = len(self._key_lengths) - len(positions)
        if padding < 0:
            raise ValueError(f"positions: got {len(positions)}; captured for {len(self._key_lengths)} sequences")
        self._key_lengths = [*(position + self._rows for position in positions), *[self._rows] * padding]

    def host_arguments(self) -> dict[str, list[int]]:
        """Lengths by the names in the operator's schema; of the queries the running total."""
        return {"actual_seq_lengths": self._query_lengths, "actual_seq_lengths_kv": self._key_lengths}

    def __call__(
        self, *, query: Tensor, keys: Tensor, values: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor
    ) -> Tensor:
        del positions  # the lengths say it
        _, _, heads, width = query.shape
        fused: Any = torch.ops.npu.npu_fused_infer_attention_score
        mixed, _ = fused(
            query.flatten(0, 1),
            self._blocks(keys),
            self._blocks(values),
            atten_mask=self._mask,
            block_table=block_tables.index_select(0, slots).int(),
            num_heads=heads,
            num_key_value_heads=self._key_heads,
            scale=1 / math.sqrt(width),
            input_layout="TND",
            sparse_mode=3,
            block_size=self._block_size,
            **self.host_arguments(),
        )
        attended: Tensor = mixed
        return attended.view(query.shape)

    def _blocks(self, cache: Tensor) -> Tensor:
        """[blocks, rows of a block, G * D]; rows behind the last whole block belong to none."""
        blocks = cache.shape[0] // self._block_size
        return cache[: blocks * self._block_size].view(blocks, self._block_size, cache.shape[1])
