"""The step's persistent tensors, made from the K7 layout and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from torch import Tensor

from heptagram_kernels.layout import K7_LAYOUT, Bindings
from heptagram_kernels.workspace import Declaration, Workspace

_OWNER: Final = "step"


@dataclass(frozen=True, slots=True)
class K7Buffers:
    """Arguments of the step by their names in the layout; the logits come from the target.

    State has a row for each slot and one for padding. ``state_draft_limits`` is how many drafts may still be verified
    before ``max_tokens`` (-1: the sequence is at its end), ``state_max_drafts`` how many one step may have. Outputs are
    those of :meth:`heptagram_kernels.ops.Ops.verify_chain`: ``verified`` tokens, their ``counts``, and ``finished``.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    guards: Tensor
    draft_counts: Tensor
    mask_pool: Tensor
    mask_rows: Tensor
    state_tokens: Tensor
    state_positions: Tensor
    state_draft_counts: Tensor
    state_draft_limits: Tensor
    state_max_drafts: Tensor
    state_generations: Tensor
    verified: Tensor
    finished: Tensor
    counts: Tensor
    next_drafts: Tensor
    next_counts: Tensor
    candidates: Tensor
    confidences: Tensor

    @classmethod
    def declarations(cls, bindings: Bindings) -> Sequence[Declaration]:
        """What to reserve; ``bindings.batch`` is the largest batch."""
        return K7_LAYOUT.declare(bindings, *(spec.name for spec in fields(cls)), owner=_OWNER)

    @classmethod
    def take(cls, workspace: Workspace) -> K7Buffers:
        """The reserved tensors."""
        return cls(**{spec.name: workspace.take(f"{_OWNER}.{spec.name}") for spec in fields(cls)})

    def first(self, batch: int) -> K7Buffers:
        """Views for a step of ``batch`` sequences."""
        return K7Buffers(
            **{
                spec.name: (tensor[:batch] if spec.name in _BY_SEQUENCE else tensor)
                for spec in fields(self)
                for tensor in (getattr(self, spec.name),)
            }
        )

    @property
    def padding_slot(self) -> int:
        """The row of state that belongs to no sequence."""
        return len(self.state_tokens) - 1


_BY_SEQUENCE: Final = frozenset(argument.name for argument in K7_LAYOUT.arguments if argument.shape[0] == "B")
