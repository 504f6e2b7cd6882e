"""The step's persistent tensors: filled in place from the plan, read by the target and the verifier.

They are declared in the order and the shapes of the K7 layout and reserved in a caller-owned workspace; a step of B
sequences uses the first B of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heptagram_backend.masks import words_for
from heptagram_backend.plan import ROWS, Draft
from heptagram_backend.sequence import Sequence as Request
from heptagram_kernels.bitmask import VerifyGreedy
from heptagram_kernels.mask_pool import MaskRows
from heptagram_kernels.workspace import Declaration, Workspace


@dataclass(frozen=True, slots=True)
class Batch:
    """Views of B sequences; see the K7 layout for dtypes."""

    token_ids: Tensor  # [B, 8]
    positions: Tensor  # [B]
    slots: Tensor  # [B]
    draft_counts: Tensor  # [B]
    mask_rows: Tensor  # [B, 8]
    verified: Tensor  # [B, 8]
    accepted: Tensor  # [B]


def declarations(*, slots: int, vocab_size: int, pool_rows: int) -> tuple[Declaration, ...]:
    """What the step needs in its workspace."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_ids": (slots, ROWS),
        "positions": (slots,),
        "slots": (slots,),
        "draft_counts": (slots,),
        "mask_rows": (slots, ROWS),
        "verified": (slots, ROWS),
        "accepted": (slots,),
    }
    pool = Declaration("step.mask_pool", torch.int32, (pool_rows, words_for(vocab_size)))
    return (pool, *(Declaration(f"step.{name}", torch.int64, shape) for name, shape in shapes.items()))


class StepInputs:
    """Owner of the step's tensors in ``workspace``. ``verify`` is the device's ``verify_greedy``.

    ``masks`` writes the pool's rows while a step is planned.
    """

    def __init__(self, workspace: Workspace, verify: VerifyGreedy, masks: MaskRows) -> None:
        self._tensors = {name: workspace.take(f"step.{name}") for name in Batch.__dataclass_fields__}
        self._mask_pool = workspace.take("step.mask_pool")
        self._verify = verify
        self._masks = masks

    def load(self, planned: Sequence[tuple[Request, Draft]]) -> Batch:
        """Fill the inputs of a step. Dead rows hold token 0 and point at row 0 of the pool."""
        self._masks.flush()
        count = len(planned)
        batch = Batch(**{name: tensor[:count] for name, tensor in self._tensors.items()})
        tokens = np.zeros((count, ROWS), dtype=np.int64)
        rows = np.zeros((count, ROWS), dtype=np.int64)
        for place, (request, draft) in enumerate(planned):
            tokens[place, 0] = request.tokens[-1]
            tokens[place, 1 : 1 + len(draft.tokens)] = draft.tokens
            rows[place, : len(draft.rows)] = draft.rows
        batch.token_ids.copy_(torch.from_numpy(tokens))
        batch.mask_rows.copy_(torch.from_numpy(rows))
        batch.positions.copy_(torch.tensor([len(request.tokens) - 1 for request, _ in planned]))
        batch.slots.copy_(torch.tensor([request.slot for request, _ in planned]))
        batch.draft_counts.copy_(torch.tensor([len(draft.tokens) for _, draft in planned]))
        return batch

    def verify(self, batch: Batch, logits: Tensor) -> list[list[int]]:
        """Verify the step's drafts: per sequence the accepted drafts and the token behind them (-1: row unusable)."""
        self._verify(
            logits=logits,
            token_ids=batch.token_ids,
            draft_counts=batch.draft_counts,
            mask_pool=self._mask_pool,
            mask_rows=batch.mask_rows,
            out_verified=batch.verified,
            out_accepted=batch.accepted,
        )
        accepted = batch.accepted.tolist()
        return [tokens[: accepted[place] + 1] for place, tokens in enumerate(batch.verified.tolist())]
