"""The border between a planned step and its tensors: filled in place from the plan, read back as verdicts.

The tensors are those of the K7 layout, reserved in a caller-owned workspace. State lies by slot: what a step leaves
there is what the next one starts from, and the plan writes over it what the host has decided since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heptagram_backend.plan import ROWS, Draft
from heptagram_backend.sequence import Sequence as Request
from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.mask_pool import MaskRows
from heptagram_kernels.ops import NO_CHOICE
from heptagram_kernels.program import K7Program
from heptagram_kernels.sampling import Sampling
from heptagram_kernels.step import gather


@dataclass(frozen=True, slots=True)
class Batch:
    """A loaded step of ``size`` sequences, in the ``buffers`` of the bucket that holds it; the others are padding."""

    size: int
    buffers: K7Buffers


class StepInputs:
    """Loads steps and runs ``program``. ``masks`` writes the pool's rows while a step is planned."""

    def __init__(self, program: K7Program, masks: MaskRows) -> None:
        self._program = program
        self._masks = masks
        self._owners: dict[int, tuple[str, int]] = {}  # by slot: the request, and its generation
        self._generations = 0

    @property
    def graph_misses(self) -> int:
        """Parts of steps that no graph was captured for."""
        return self._program.misses

    def load(self, planned: Sequence[tuple[Request, Draft]]) -> Batch:
        """Fill the state and the inputs of a step. Dead rows hold token 0 and point at row 0 of the pool; so do those
        that :meth:`mask` is still to point elsewhere."""
        count = len(planned)
        buffers = self._program.bucket(count)
        tokens = np.zeros((count, ROWS), dtype=np.int64)
        numbers = np.empty((6, count), dtype=np.int64)
        for place, (request, draft) in enumerate(planned):
            assert request.slot is not None
            tokens[place, 0] = request.tokens[-1]
            tokens[place, 1 : 1 + len(draft.tokens)] = draft.tokens
            numbers[:, place] = (
                request.slot,
                self._generation(request.slot, request.id),
                len(request.tokens) - 1,
                len(draft.tokens),
                request.remaining - 1,
                request.request.num_speculative_tokens,
            )
        slots, generations, positions, drafts, limits, most = torch.from_numpy(numbers).to(buffers.slots.device)
        buffers.slots[:count] = slots
        buffers.guards[:count] = generations
        buffers.mask_rows[:count] = 0
        self._program.pad(buffers, count)
        buffers.state_tokens.index_copy_(0, slots, torch.from_numpy(tokens).to(slots.device))
        buffers.state_generations.index_copy_(0, slots, generations)
        buffers.state_positions.index_copy_(0, slots, positions)
        buffers.state_draft_counts.index_copy_(0, slots, drafts)
        buffers.state_draft_limits.index_copy_(0, slots, limits)
        buffers.state_max_drafts.index_copy_(0, slots, most)
        return Batch(count, buffers)

    def mask(self, batch: Batch, planned: Sequence[tuple[Request, Draft]]) -> None:
        """Point the rows of a loaded step at their masks, behind its forward; drafts may have become fewer."""
        self._masks.flush()
        rows = np.zeros((batch.size, ROWS), dtype=np.int64)
        for place, (_, draft) in enumerate(planned):
            rows[place, : len(draft.rows)] = draft.rows
        batch.buffers.mask_rows[: batch.size] = torch.from_numpy(rows)
        batch.buffers.draft_counts[: batch.size] = torch.tensor([len(draft.tokens) for _, draft in planned])

    def forward(self, batch: Batch) -> Tensor:
        """Logits [bucket, 8, V] of a step without prompts beside it."""
        return self._program.forward(batch.buffers)

    def gather(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids [B, 8], positions [B] and slots [B], for a forward that has prompts beside the step."""
        gather(batch.buffers)
        buffers = batch.buffers
        return buffers.token_ids[: batch.size], buffers.positions[: batch.size], buffers.slots[: batch.size]

    def verify(self, batch: Batch, logits: Tensor, sampling: Sampling | None = None) -> list[list[int]]:
        """Verify the step's drafts: per sequence the accepted drafts and the token behind them (-1: row unusable)."""
        self._program.settle(batch.buffers, logits, sampling)
        buffers, size = batch.buffers, batch.size
        outputs = (output[:size].tolist() for output in (buffers.verified, buffers.counts, buffers.finished))
        return [
            # behind the tokens of a sequence is -1, which tells that the next row was unusable
            tokens[: count + (finished == NO_CHOICE)]
            for tokens, count, finished in zip(*outputs, strict=True)
        ]

    def _generation(self, slot: int, request: str) -> int:
        """A number that only this tenancy of the slot has."""
        owner, generation = self._owners.get(slot, ("", 0))
        if owner != request:
            self._generations = generation = self._generations + 1
            self._owners[slot] = request, generation
        return generation
