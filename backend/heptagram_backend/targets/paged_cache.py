"""Key/value cache in blocks, and how one sequence's blocks are read: where they are neighbours, without a copy.

Attention takes a sequence's keys in tiles of one size. The blocks of most tiles are neighbours, because the pool deals
them out in runs, and neighbouring tiles are read as one view of the cache. A tile that is scattered, where a shared
prefix ends for instance, is gathered first. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from heptagram_backend.errors import ReleaseError
from heptagram_kernels.layout import K7_LAYOUT, Bindings
from heptagram_kernels.workspace import Declaration, Workspace


@dataclass(frozen=True, slots=True)
class CacheShape:
    """``blocks`` of ``block_size`` rows in each layer, and block tables of ``table`` entries for each of ``slots``.

    ``tile`` is the number of keys, a multiple of ``block_size``, that attention takes at a time.
    """

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    block_size: int
    slots: int
    table: int
    tile: int
    blocks: int = 0

    @property
    def block_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.head_dim * self.block_size * self.dtype.itemsize

    def sized(self, *, blocks: int | None, memory: int | None) -> CacheShape:
        """With ``blocks`` blocks, or those that ``memory`` bytes hold, or a full table for each slot.

        Raises:
            ReleaseError: not even one sequence of full length fits.
        """
        name = "kv_cache_blocks" if memory is None else "kv_cache_memory"
        if memory is not None:
            blocks = memory // self.block_bytes
        if blocks is not None and blocks < self.table:
            raise ReleaseError(
                f"engine.{name}: {blocks} blocks cannot hold one sequence of max_model_len, which needs {self.table} "
                f"of {self.block_bytes} bytes; give the cache more, or lower max_model_len"
            )
        return replace(self, blocks=self.slots * self.table if blocks is None else blocks)

    @property
    def rows(self) -> int:
        """One tile more than the blocks: the view of the last block's tile ends there."""
        return self.blocks * self.block_size + self.tile

    def declarations(self) -> tuple[Declaration, ...]:
        """Keys lie transposed, [heads, head_dim, rows]: bf16 products with them are a third faster on CPU."""
        bindings = Bindings(batch=0, vocab_size=0, pool_rows=0, slots=self.slots, table=self.table)
        tables = K7_LAYOUT.declare(bindings, "block_tables", owner="target")
        layers = (
            declaration
            for layer in range(self.layers)
            for declaration in (
                Declaration(f"target.keys.{layer}", self.dtype, (self.heads, self.head_dim, self.rows)),
                Declaration(f"target.values.{layer}", self.dtype, (self.heads, self.rows, self.head_dim)),
            )
        )
        return (*tables, *layers)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Neighbouring tiles of one sequence in one layer: all their ``keys`` [heads, head_dim, tiles * tile], and
    the ``values`` [heads, tile, head_dim] of each."""

    keys: Tensor
    values: tuple[Tensor, ...]


class Piece(Protocol):
    """Some tiles of a sequence, the same ones in every layer."""

    keys: int

    def read(self, layer: int) -> Tiles: ...


class View:
    """Neighbours in the cache: nothing is copied."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *, first: int, keys: int, tile: int) -> None:
        self.keys = keys
        rows = slice(first, first + keys)
        self._layers = [
            Tiles(all_keys[:, :, rows], torch.split(values[:, rows], tile, dim=1)) for all_keys, values in layers
        ]

    def read(self, layer: int) -> Tiles:
        return self._layers[layer]


class Gathered:
    """One scattered tile, copied together from ``blocks`` (int64) at each read."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *, blocks: Tensor, block_size: int) -> None:
        self.keys = len(blocks) * block_size
        self._layers = layers
        self._blocks = blocks
        self._block_size = block_size

    def read(self, layer: int) -> Tiles:
        keys, values = self._layers[layer]
        heads, head_dim, _ = keys.shape
        gathered = keys.view(heads, head_dim, -1, self._block_size).index_select(2, self._blocks)
        mixed = values.view(heads, -1, self._block_size, head_dim).index_select(1, self._blocks)
        return Tiles(gathered.view(heads, head_dim, self.keys), (mixed.view(heads, self.keys, head_dim),))


@dataclass(frozen=True, slots=True)
class Write:
    """``count`` new rows of a sequence, from the ``source``-th on, go to the cache rows from ``row`` on."""

    source: int
    count: int
    row: int


class PagedCache:
    """Keys and values of every layer. Every row holds finite numbers, whoever wrote it: masked rows are multiplied too.

    Until a slot is told its blocks it has the ``table`` blocks of its own number, if there are so many.
    """

    def __init__(self, shape: CacheShape, workspace: Workspace) -> None:
        self.shape = shape
        self._tables = workspace.take("target.block_tables")
        self._layers = [
            (workspace.take(f"target.keys.{layer}"), workspace.take(f"target.values.{layer}"))
            for layer in range(shape.layers)
        ]
        self._blocks: list[list[int]] = [[] for _ in range(shape.slots)]
        self._pieces: dict[int, tuple[int, tuple[Piece, ...]]] = {}
        if shape.blocks >= shape.slots * shape.table:
            for slot in range(shape.slots):
                self.set_blocks(slot, range(slot * shape.table, (slot + 1) * shape.table))

    def set_blocks(self, slot: int, blocks: Sequence[int]) -> None:
        """From now on ``slot`` has ``blocks``, in the order of its rows.

        Raises:
            ValueError: more than a table holds, or one that is not there; the slot keeps what it has.
        """
        if len(blocks) > self.shape.table or not all(0 <= block < self.shape.blocks for block in blocks):
            raise ValueError(
                f"slot {slot}: blocks {list(blocks)}; a table holds {self.shape.table}, each below {self.shape.blocks}"
            )
        self._blocks[slot] = list(blocks)
        self._tables[slot, : len(blocks)] = torch.tensor(self._blocks[slot])
        self._pieces.pop(slot, None)

    def writes(self, slot: int, *, position: int, rows: int) -> tuple[Write, ...]:
        """Where ``rows`` rows that stand at ``position`` and behind go.

        Raises:
            ValueError: they are more than the blocks of ``slot`` hold.
        """
        if position + rows > self.rows_of(slot):
            raise ValueError(f"slot {slot}: rows up to {position + rows} in blocks of {self.rows_of(slot)} rows")
        made: list[Write] = []
        for source, row in self._split(slot, position, rows):
            size = min(self.shape.block_size - row % self.shape.block_size, rows - source)
            last = made[-1] if made else None
            if last is not None and last.row + last.count == row:
                made[-1] = Write(last.source, last.count + size, last.row)
            else:
                made.append(Write(source, size, row))
        return tuple(made)

    def rows_of(self, slot: int) -> int:
        return len(self._blocks[slot]) * self.shape.block_size

    def rows(self, slot: int, *, position: int, rows: int) -> Tensor:
        """Where ``rows`` rows that stand at ``position`` and behind lie: int64 [rows]."""
        places = torch.arange(position, position + rows)
        blocks = torch.tensor(self._blocks[slot], dtype=torch.int64)
        return blocks[places // self.shape.block_size] * self.shape.block_size + places % self.shape.block_size

    def pieces(self, slot: int, tiles: int) -> tuple[Piece, ...]:
        """How the first ``tiles`` tiles of ``slot`` are read."""
        known, pieces = self._pieces.get(slot, (0, ()))
        if known != tiles:
            pieces = tuple(self._cut(slot, tiles))
            self._pieces[slot] = tiles, pieces
        return pieces

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys [heads, head_dim, rows] and values [heads, rows, head_dim] of one layer."""
        return self._layers[layer]

    def _split(self, slot: int, position: int, rows: int) -> Iterator[tuple[int, int]]:
        """At each block: the first of the new rows in it, and its row in the cache."""
        size = self.shape.block_size
        place = position
        while place < position + rows:
            yield place - position, self._blocks[slot][place // size] * size + place % size
            place += size - place % size

    def _cut(self, slot: int, tiles: int) -> Iterator[Piece]:
        size, tile = self.shape.block_size, self.shape.tile
        first, keys = 0, 0  # the run of neighbours so far
        for start in range(0, tiles * tile // size, tile // size):
            blocks = self._blocks[slot][start : start + tile // size]
            straight = blocks == list(range(blocks[0], blocks[0] + len(blocks)))
            if straight and keys and blocks[0] * size == first + keys:
                keys += tile
                continue
            if keys:
                yield View(self._layers, first=first, keys=keys, tile=tile)
            first, keys = blocks[0] * size, tile if straight else 0
            if not straight:
                padding = blocks[-1:] * (tile // size - len(blocks))
                yield Gathered(self._layers, blocks=torch.tensor(blocks + padding), block_size=size)
        if keys:
            yield View(self._layers, first=first, keys=keys, tile=tile)
