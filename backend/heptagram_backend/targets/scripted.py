"""A target that follows a script: for tests of everything around a model, in microseconds and without weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heptagram_kernels.layout import ROWS

Script = Callable[[tuple[int, ...]], int]
"""The next token, given all tokens so far. Must be a pure function."""


class ScriptedTarget:
    """Keeps the tokens of each slot as a model keeps keys and values, and asks the script about what the *cache* holds.

    So a row that was never written is an error, and one that a rejected draft left behind changes the output.
    Logits are float32: 1 for the script's token, 0 for all others. Implements :class:`targets.base.Target`.
    """

    def __init__(
        self, script: Script, *, vocab_size: int, num_slots: int, max_model_len: int, prefill_chunk: int = 8
    ) -> None:
        self._script = script
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._slots: list[list[int | None]] = [[None] * (max_model_len + ROWS) for _ in range(num_slots)]

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """See :meth:`Target.prefill`. The rest of the slot is forgotten, as a padded chunk overwrites it."""
        end = start + len(token_ids)
        if start % self._prefill_chunk or not 0 < len(token_ids) <= self._prefill_chunk or end > self._max_model_len:
            raise ValueError(f"prefill of {len(token_ids)} tokens at {start} is not one chunk of {self._prefill_chunk}")
        rows = self._slots[slot]
        rows[start:] = [*token_ids, *([None] * (len(rows) - end))]

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        logits = torch.zeros((len(slots), ROWS, self._vocab_size))
        steps = zip(token_ids.tolist(), positions.tolist(), slots.tolist(), strict=True)
        for index, (tokens, position, slot) in enumerate(steps):
            if not 0 <= position < self._max_model_len:
                raise ValueError(f"position {position}: must be 0 to {self._max_model_len - 1}")
            self._slots[slot][position : position + ROWS] = tokens
            for row in range(ROWS):
                self.write(logits[index, row], self._context(slot, position + row + 1))
        return logits

    def write(self, row: Tensor, context: tuple[int, ...]) -> None:
        """Write the logits (float32 [V], zeros so far) of the row that follows ``context``; tests override it."""
        row[self._script(context)] = 1

    def _context(self, slot: int, length: int) -> tuple[int, ...]:
        context = self._slots[slot][:length]
        if None in context:
            raise ValueError(f"slot {slot}: row {context.index(None)} is read, but was never written")
        return tuple(token for token in context if token is not None)
