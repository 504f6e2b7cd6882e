"""Key/value cache of independent slots, one for each running sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_kernels.workspace import Declaration, Workspace


@dataclass(frozen=True, slots=True)
class CacheShape:
    """``length`` is the number of cache rows of a slot, a multiple of the attention bucket."""

    layers: int
    slots: int
    heads: int
    head_dim: int
    length: int
    dtype: torch.dtype

    def declarations(self) -> tuple[Declaration, ...]:
        """Keys lie transposed, [slots, heads, head_dim, length]: bf16 products with them are a third faster on CPU."""
        keys = (self.slots, self.heads, self.head_dim, self.length)
        values = (self.slots, self.heads, self.length, self.head_dim)
        return tuple(
            declaration
            for layer in range(self.layers)
            for declaration in (
                Declaration(f"target.keys.{layer}", self.dtype, keys),
                Declaration(f"target.values.{layer}", self.dtype, values),
            )
        )


class SlotCache:
    """Keys and values of every layer. Rows at or behind a sequence's position may hold anything finite."""

    def __init__(self, shape: CacheShape, workspace: Workspace) -> None:
        self.shape = shape
        names = range(shape.layers)
        self._keys = [workspace.take(f"target.keys.{layer}") for layer in names]
        self._values = [workspace.take(f"target.values.{layer}") for layer in names]
        self._used = [0] * shape.slots

    def slot(self, layer: int, slot: int) -> tuple[Tensor, Tensor]:
        """Keys [heads, head_dim, length] and values [heads, length, head_dim] of one slot in one layer."""
        return self._keys[layer][slot], self._values[layer][slot]

    def touch(self, slot: int, *, start: int, end: int) -> None:
        """Rows ``start .. end`` are about to be written; a sequence that starts at 0 gets a clean slot.

        Stale rows are masked, but 0 x NaN is NaN: without this a sequence that overflowed would spoil its successor.
        """
        if start == 0 and (used := self._used[slot]):
            for keys, values in zip(self._keys, self._values, strict=True):
                keys[slot, :, :, :used].zero_()
                values[slot, :, :used].zero_()
            self._used[slot] = 0
        self._used[slot] = max(self._used[slot], end)
