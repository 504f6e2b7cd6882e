"""The step's graphs: one pair for each batch size, captured before the first request.

A step has two parts, so that the host can plan masks while the target runs: the forward, and what needs the masks. A
batch without constraints launches both back to back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device
from heptagram_kernels.graph import Graph
from heptagram_kernels.layout import ROWS
from heptagram_kernels.plans import PlanIndex
from heptagram_kernels.sampling import Sampling
from heptagram_kernels.sampling_warm_up import every_branch
from heptagram_kernels.step import DraftStep, Forward, gather, settle

_NO_OWNER: Final = -1


@dataclass(slots=True)
class _Cell:
    """The logits that a bucket's second part reads: this step's, or for good those of its recorded forward."""

    logits: Tensor | None = None


class K7Program:
    """Runs steps on ``buffers``. ``batches`` are the sizes to capture; a step is padded to the next larger one.

    Row 0 of the mask pool allows the ids below ``real_tokens``.
    """

    def __init__(
        self,
        buffers: K7Buffers,
        *,
        device: Device,
        forward: Forward,
        batches: Iterable[int],
        real_tokens: int,
        draft: DraftStep | None = None,
    ) -> None:
        self.buffers = buffers
        self.batches: Sequence[int] = sorted(batches)
        self._device = device
        self._forward = forward
        self._real_tokens = real_tokens
        self._draft = draft
        self._plans: PlanIndex[Graph] = PlanIndex()
        self._views = {batch: buffers.first(batch) for batch in self.batches}
        self._cells = {batch: _Cell() for batch in self.batches}

    @property
    def misses(self) -> int:
        """Steps that no graph was captured for."""
        return self._plans.misses.total()

    def bucket(self, batch: int) -> K7Buffers:
        """The views of the smallest captured size that holds ``batch`` sequences."""
        for size in self.batches:
            if size >= batch:
                return self._views[size]
        raise ValueError(f"a step of {batch} sequences; the largest captured one has {self.batches[-1]}")

    def warm_up(self, *, vocab_size: int, dtype: torch.dtype) -> None:
        """Capture every bucket, and run the second part of each and the sampler once, on padding: no state changes.

        A graph that records runs the target here too, on the padding slot.
        """
        zeros = torch.zeros((self.batches[-1], ROWS, vocab_size), dtype=dtype, device=self.buffers.slots.device)
        for batch in reversed(self.batches):  # the largest first: the others fit into its memory
            views, cell = self._views[batch], self._cells[batch]
            self.pad(views, 0)
            forward, second = self._device.graph(), self._device.graph()
            forward.capture(partial(self._run_forward, views))
            gather(views)
            cell.logits = forward.replay() if forward.records else zeros[:batch]
            second.capture(partial(self._run_settle, views, cell))
            self._plans.declare("forward", _key(views), forward)
            self._plans.declare("settle", _key(views), second)
            self.settle(views, cell.logits)
        self.settle(views, zeros[:batch], every_branch(zeros.device))

    def pad(self, views: K7Buffers, used: int) -> None:
        """Sequences from ``used`` on are padding."""
        views.slots[used:] = self.buffers.padding_slot
        views.guards[used:] = _NO_OWNER
        views.mask_rows[used:] = 0

    def forward(self, views: K7Buffers) -> Tensor:
        """Gather the inputs and run the target: logits [B, 8, V], valid until the next step."""
        graph = self._plans.find("forward", _key(views))
        return self._run_forward(views) if graph is None else graph.replay()

    def settle(self, views: K7Buffers, logits: Tensor, sampling: Sampling | None = None) -> Tensor:
        """See :func:`heptagram_kernels.step.settle`. The ragged arguments of sampling fit no graph."""
        if sampling is not None:
            return self._settle(views, logits, sampling)
        graph = self._plans.find("settle", _key(views))
        if graph is None:
            return self._settle(views, logits)
        cell = self._cells[len(views.slots)]
        if not graph.records:
            cell.logits = logits
        elif cell.logits is not None and cell.logits is not logits:
            cell.logits.copy_(logits)  # of a forward that had prompts beside it, which fit no graph
        counts = graph.replay()
        if not graph.records:
            cell.logits = None  # consumed
        return counts

    def _run_forward(self, views: K7Buffers) -> Tensor:
        gather(views)
        return self._forward(views.token_ids, views.positions, views.slots)

    def _run_settle(self, views: K7Buffers, cell: _Cell) -> Tensor:
        assert cell.logits is not None
        return self._settle(views, cell.logits)

    def _settle(self, views: K7Buffers, logits: Tensor, sampling: Sampling | None = None) -> Tensor:
        return settle(
            views,
            logits,
            device=self._device,
            real_tokens=self._real_tokens,
            draft=self._draft,
            sampling=sampling,
        )


def _key(views: K7Buffers) -> tuple[Tensor, ...]:
    return views.token_ids, views.slots
