"""The device's side of the mask pool: one pool by both ways, nothing moved without need, no buffer reused early."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heptagram_kernels.mask_pool import HostRows, MaskRows, StagedRows, mask_rows

WORDS, ROWS_PER_STEP = 3, 4
ONES = np.array([-1, -1, 7], dtype=np.int32)


class Queue:
    """Counts what is recorded and waited for, as a device's event would."""

    def __init__(self) -> None:
        self.recorded = self.waited = 0

    def record(self) -> None:
        self.recorded += 1

    def synchronize(self) -> None:
        self.waited = self.recorded


def _staged(pool: torch.Tensor) -> tuple[StagedRows, list[Queue]]:
    queues: list[Queue] = []

    def fence() -> Queue:
        queues.append(Queue())
        return queues[-1]

    return StagedRows(pool, ONES, rows_per_step=ROWS_PER_STEP, fence=fence, pinned=False), queues


def _row(value: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.full(WORDS, value, dtype=np.int32)


@given(st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(-99, 99)), max_size=9), max_size=6))
def test_both_ways_give_the_same_pool_and_count_the_same_bytes(steps: list[list[tuple[int, int]]]) -> None:
    pools = [torch.zeros((10, WORDS), dtype=torch.int32) for _ in range(2)]
    writers: list[MaskRows] = [HostRows(pools[0], ONES), _staged(pools[1])[0]]
    for step in steps:
        for writer in writers:
            for index, value in dict(step).items():  # the pool's host side writes no place twice in a step
                writer.write(index, _row(value))
            writer.flush()
        assert torch.equal(*pools)
    assert writers[0].uploaded_bytes == writers[1].uploaded_bytes == sum(len(dict(step)) for step in steps) * 4 * WORDS
    assert pools[1][0].tolist() == ONES.tolist()


def test_a_step_without_new_rows_moves_nothing() -> None:
    writer, queues = _staged(torch.zeros((10, WORDS), dtype=torch.int32))
    writer.flush()
    assert writer.uploaded_bytes == 0
    assert [queue.recorded for queue in queues] == [0, 0]


def test_two_buffers_take_turns_and_neither_is_filled_while_the_device_may_read_it() -> None:
    writer, (first, second) = _staged(torch.zeros((10, WORDS), dtype=torch.int32))
    for step in range(5):
        writer.write(1, _row(step))
        filling = (first, second)[step % 2]
        assert filling.waited == filling.recorded, "the host writes into a buffer that a copy may still read"
        writer.flush()
    assert (first.recorded, second.recorded) == (3, 2)
    assert second.waited == 1, "the host waited for a copy whose buffer it does not need"


@pytest.mark.parametrize("row", [np.zeros(WORDS + 1, np.int32), np.zeros(WORDS, np.int64)])
def test_a_row_of_another_width_is_refused_and_nothing_is_written(row: np.ndarray) -> None:  # type: ignore[type-arg]
    pool = torch.zeros((10, WORDS), dtype=torch.int32)
    for writer in (mask_rows(pool, ONES, rows_per_step=ROWS_PER_STEP), _staged(pool)[0]):
        before = pool.clone()
        with pytest.raises(ValueError, match=r"the pool holds int32 \[3\]"):
            writer.write(1, row)
        with pytest.raises(ValueError, match="row 0 allows every real token"):
            writer.write(0, _row(0))
        writer.flush()
        assert torch.equal(pool, before)
        assert writer.uploaded_bytes == 0
