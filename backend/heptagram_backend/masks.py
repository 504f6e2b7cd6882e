"""The mask pool's host side: which packed row lies where on the device, found again by content.

Row 0 holds ones for real token ids and zeros for the padding behind them; an ordinary request points at it and uploads
nothing. Other rows are content-addressed and reused least recently used first: a tool call has only some 25 to 41
distinct masks, so most rows of a step are there already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ALL_TOKENS = 0

Write = Callable[[int, NDArray[np.int32]], None]


class Placed(NamedTuple):
    """Where a row lies, and the bytes uploaded to get it there: 0 when it was resident."""

    row: int
    uploaded: int


def words_for(vocab_size: int) -> int:
    """Int32 words of one packed row."""
    return (vocab_size + 31) // 32


def all_tokens_row(real_tokens: int, vocab_size: int) -> NDArray[np.int32]:
    """Row 0: bit ``i`` is set for every real token id ``i``. Int32 [ceil(vocab_size / 32)].

    Raises:
        ValueError: there are more tokens than logits.
    """
    if real_tokens > vocab_size:
        raise ValueError(f"the tokenizer has {real_tokens} tokens, but the target's logits are {vocab_size} wide")
    bits = np.zeros(words_for(vocab_size) * 32, dtype=np.uint8)
    bits[:real_tokens] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


class MaskPool:
    """Which packed row lies where in a pool of ``rows``. ``write(index, row)`` brings one to the device."""

    def __init__(self, *, rows: int, rows_per_step: int, write: Write) -> None:
        if rows <= rows_per_step:
            raise ValueError(f"a pool of {rows} rows cannot hold the {rows_per_step} of one step beside row 0")
        self.total = rows
        self._write = write
        self._places: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(rows - 1, 0, -1))

    @property
    def used(self) -> int:
        """Rows that hold a mask, row 0 among them."""
        return 1 + len(self._places)

    def place(self, row: NDArray[np.int32]) -> Placed:
        """Where ``row`` lies from now on.

        subtle: the least recently used row is never one of the current step, because the pool holds more rows than a
        step can touch.
        """
        key = row.tobytes()
        index = self._places.get(key)
        if index is not None:
            self._places.move_to_end(key)
            return Placed(index, 0)
        index = self._free.pop() if self._free else self._places.popitem(last=False)[1]
        try:
            self._write(index, row)
        except BaseException:
            self._free.append(index)  # what lay there is forgotten, so nothing finds half a row
            raise
        self._places[key] = index
        return Placed(index, row.nbytes)
