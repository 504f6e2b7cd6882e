"""A target that follows a script: for tests of everything around a model, in microseconds and without weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heptagram_backend.targets.base import Paging, PromptRows
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
        self._num_slots = num_slots
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._unit = prefill_chunk
        self._rows: list[int | None] = [None] * (num_slots * (max_model_len + ROWS))

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """See :meth:`Target.prefill`. The padding of the last chunk overwrites what stood there."""
        end = start + len(token_ids)
        if start % self._unit or not 0 < len(token_ids) <= self._prefill_chunk or end > self._max_model_len:
            raise ValueError(f"prefill of {len(token_ids)} tokens at {start} is not one chunk of {self._prefill_chunk}")
        self._write(slot, start, [*token_ids, *[None] * (-end % ROWS)])

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        logits = torch.zeros((len(slots), ROWS, self._vocab_size))
        steps = zip(token_ids.tolist(), positions.tolist(), slots.tolist(), strict=True)
        for index, (tokens, position, slot) in enumerate(steps):
            if not 0 <= position < self._max_model_len:
                raise ValueError(f"position {position}: must be 0 to {self._max_model_len - 1}")
            self._write(slot, position, tokens)
            for row in range(ROWS):
                self.write(logits[index, row], self._context(slot, position + row + 1))
        return logits

    def write(self, row: Tensor, context: tuple[int, ...]) -> None:
        """Write the logits (float32 [V], zeros so far) of the row that follows ``context``; tests override it."""
        row[self._script(context)] = 1

    def _row(self, slot: int, place: int) -> int:
        return slot * (self._max_model_len + ROWS) + place

    def _write(self, slot: int, start: int, tokens: Sequence[int | None]) -> None:
        for place, token in enumerate(tokens, start=start):
            self._rows[self._row(slot, place)] = token

    def _context(self, slot: int, length: int) -> tuple[int, ...]:
        context = [self._rows[self._row(slot, place)] for place in range(length)]
        if None in context:
            raise ValueError(f"slot {slot}: row {context.index(None)} is read, but was never written")
        return tuple(token for token in context if token is not None)


class PagedScriptedTarget(ScriptedTarget):
    """The same over ``blocks`` of ``block_size`` rows. Implements :class:`targets.base.PagedTarget`."""

    def __init__(
        self,
        script: Script,
        *,
        vocab_size: int,
        num_slots: int,
        max_model_len: int,
        blocks: int,
        block_size: int = 8,
        prefill_chunk: int = 64,
        decoded: bool = True,
    ) -> None:
        super().__init__(
            script,
            vocab_size=vocab_size,
            num_slots=num_slots,
            max_model_len=max_model_len,
            prefill_chunk=prefill_chunk,
        )
        self._unit = ROWS
        self._paging = Paging(blocks, block_size, decoded)
        self._tables: list[list[int]] = [[] for _ in range(num_slots)]
        self._rows = [None] * (blocks * block_size)

    @property
    def paging(self) -> Paging:
        return self._paging

    def set_blocks(self, slot: int, blocks: Sequence[int]) -> None:
        """See :meth:`PagedTarget.set_blocks`."""
        self._tables[slot] = list(blocks)

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        """See :meth:`PagedTarget.mixed`."""
        for prompt in prompts:
            self.prefill(slot=prompt.slot, start=prompt.start, token_ids=prompt.token_ids)
        return self.forward(token_ids, positions, slots)

    def _row(self, slot: int, place: int) -> int:
        size = self._paging.block_size
        return self._tables[slot][place // size] * size + place % size
