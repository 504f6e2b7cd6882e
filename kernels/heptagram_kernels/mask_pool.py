"""The mask pool on its device: packed rows, written between steps and read by index.

Row 0 holds ones for the real tokens and is written once. On the CPU a row is written where it lies. Elsewhere rows are
collected in pinned memory, and one copy and one scatter a step bring all new ones over: two buffers take turns, so
that the host fills one while the device still reads the other. A step without new rows moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Row = NDArray[np.int32]


class Fence(Protocol):
    """A mark in the device's queue; ``torch.cuda.Event`` and ``torch.npu.Event`` are such."""

    def record(self) -> None: ...

    def synchronize(self) -> None:
        """Wait until the device has passed the mark; at once where there is none."""


class MaskRows(Protocol):
    """Writes rows (int32 [W]) of a pool [P, W]."""

    @property
    def pool(self) -> Tensor:
        """int32 [P, W]."""

    @property
    def uploaded_bytes(self) -> int:
        """Bytes sent to the device since row 0 was."""

    def write(self, index: int, row: Row) -> None:
        """Row ``index``, before the next step reads it.

        Raises:
            ValueError: the row has another width than the pool, or is row 0.
        """

    def flush(self) -> None:
        """All that was written is what the next operation on the device reads."""


class HostRows:
    """A pool in host memory."""

    def __init__(self, pool: Tensor, all_tokens: Row) -> None:
        self.pool = pool
        self._rows: NDArray[np.int32] = pool.numpy()
        _check(0, all_tokens, width=pool.shape[1], first=0)
        self._rows[0] = all_tokens
        self.uploaded_bytes = 0

    def write(self, index: int, row: Row) -> None:
        _check(index, row, width=self._rows.shape[1])
        self._rows[index] = row
        self.uploaded_bytes += row.nbytes

    def flush(self) -> None:
        """Nothing waits."""


@dataclass(slots=True)
class _Half:
    """One of the two buffers: ``rows`` [N, W] and the pool ``places`` [N] of its first ``used`` ones."""

    rows: Tensor
    places: Tensor
    fence: Fence
    used: int = 0


class StagedRows:
    """A pool in device memory. At most ``rows_per_step`` rows wait; one more sends them on their way."""

    def __init__(
        self, pool: Tensor, all_tokens: Row, *, rows_per_step: int, fence: Callable[[], Fence], pinned: bool = True
    ) -> None:
        _check(0, all_tokens, width=pool.shape[1], first=0)
        self.pool = pool
        pool[0].copy_(torch.from_numpy(all_tokens))
        shape = (rows_per_step, pool.shape[1])
        self._halves = [
            _Half(
                torch.zeros(shape, dtype=torch.int32, pin_memory=pinned),
                torch.zeros(rows_per_step, dtype=torch.int64, pin_memory=pinned),
                fence(),
            )
            for _ in range(2)
        ]
        self._arrived = torch.zeros(shape, dtype=torch.int32, device=pool.device)
        self._places = torch.zeros(rows_per_step, dtype=torch.int64, device=pool.device)
        self.uploaded_bytes = 0

    def write(self, index: int, row: Row) -> None:
        _check(index, row, width=self.pool.shape[1])
        if self._halves[0].used == len(self._halves[0].places):
            self.flush()
        half = self._halves[0]
        if half.used == 0:
            half.fence.synchronize()  # the copy that last read this buffer
        half.rows[half.used] = torch.from_numpy(row)
        half.places[half.used] = index
        half.used += 1

    def flush(self) -> None:
        """See :meth:`MaskRows.flush`. One queue keeps the order: copy, scatter, and then the step."""
        half = self._halves[0]
        if half.used == 0:
            return
        rows, places = self._arrived[: half.used], self._places[: half.used]
        rows.copy_(half.rows[: half.used], non_blocking=True)
        places.copy_(half.places[: half.used], non_blocking=True)
        half.fence.record()
        self.pool.index_copy_(0, places, rows)
        self.uploaded_bytes += rows.nbytes
        half.used = 0
        self._halves.reverse()


def mask_rows(pool: Tensor, all_tokens: Row, *, rows_per_step: int) -> MaskRows:
    """The writer for the device that ``pool`` lies on."""
    if pool.device.type == "cpu":
        return HostRows(pool, all_tokens)
    fence: Callable[[], Fence] = torch.get_device_module(pool.device).Event
    return StagedRows(pool, all_tokens, rows_per_step=rows_per_step, fence=fence)


def _check(index: int, row: Row, *, width: int, first: int = 1) -> None:
    if row.shape != (width,) or row.dtype != np.int32:
        raise ValueError(
            f"mask row: got {row.dtype} {list(row.shape)}, the pool holds int32 [{width}]; build the grammars for the "
            "width of the target's logits"
        )
    if index < first:
        raise ValueError("mask row 0 allows every real token and is never written again")
