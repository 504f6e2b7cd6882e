"""The mask pool's host side: packed rows on the device, found again by content.

Row 0 holds ones for real token ids and zeros for the padding behind them; an ordinary request points at it and uploads
nothing. Other rows are content-addressed and reused least recently used first: a tool call has only some 25 to 41
distinct masks, so most rows of a step are there already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ALL_TOKENS = 0

Upload = Callable[[int, NDArray[np.int32]], None]


def words_for(vocab_size: int) -> int:
    """Int32 words of one packed row."""
    return (vocab_size + 31) // 32


def all_tokens_row(real_tokens: int, vocab_size: int) -> NDArray[np.int32]:
    """Row 0: bit ``i`` is set for every real token id ``i``. Int32 [ceil(vocab_size / 32)]."""
    bits = np.zeros(words_for(vocab_size) * 32, dtype=np.uint8)
    bits[:real_tokens] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


class MaskPool:
    """Which packed row lies where. ``upload(index, row)`` writes one row to the device."""

    def __init__(self, *, rows: int, rows_per_step: int, all_tokens: NDArray[np.int32], upload: Upload) -> None:
        if rows <= rows_per_step:
            raise ValueError(f"a pool of {rows} rows cannot hold the {rows_per_step} of one step beside row 0")
        self._upload = upload
        self._places: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(rows - 1, 0, -1))
        self._row_bytes = all_tokens.nbytes
        upload(ALL_TOKENS, all_tokens)

    def place(self, row: NDArray[np.int32]) -> tuple[int, int]:
        """Index of ``row`` in the pool and the bytes uploaded to get it there (0 when it was resident).

        subtle: the least recently used row is never one of the current step, because the pool holds more rows than a
        step can touch.
        """
        key = row.tobytes()
        index = self._places.get(key)
        if index is not None:
            self._places.move_to_end(key)
            return index, 0
        index = self._free.pop() if self._free else self._places.popitem(last=False)[1]
        self._upload(index, row)
        self._places[key] = index
        return index, self._row_bytes
