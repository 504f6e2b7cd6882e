"""A model that says what it is told: so that arms which constrain differently emit the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heptagram_backend.targets.base import Target
from heptagram_backend.targets.wrapped import WrappedTarget

_SURE = 1e4


class TeacherForced(WrappedTarget):
    """``inner`` with all its work, but in each slot the next token after position ``p`` is ``script[p + 1]``.

    Implements :class:`heptagram_backend.targets.base.Target`. A slot without a script is left as it is.
    """

    def __init__(self, inner: Target) -> None:
        super().__init__(inner)
        self._scripts: dict[int, Sequence[int]] = {}

    def teach(self, slot: int, tokens: Sequence[int]) -> None:
        """All tokens of the sequence in ``slot``, prompt first."""
        self._scripts[slot] = tokens

    def unteach(self) -> None:
        self._scripts.clear()

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        logits = self._inner.forward(token_ids, positions, slots)
        for index, (slot, position) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
            following = list(self._scripts.get(slot, ())[position + 1 : position + 9])
            if following:
                logits[index, torch.arange(len(following)), torch.tensor(following)] = _SURE
        return logits
