"""A target around another one, for those that change its logits and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from heptagram_backend.targets.base import Target


class WrappedTarget:
    """Passes everything on to ``inner``. Implements :class:`targets.base.Target`; override :meth:`forward`."""

    def __init__(self, inner: Target) -> None:
        self._inner = inner

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    @property
    def num_slots(self) -> int:
        return self._inner.num_slots

    @property
    def max_model_len(self) -> int:
        return self._inner.max_model_len

    @property
    def prefill_chunk(self) -> int:
        return self._inner.prefill_chunk

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        self._inner.prefill(slot=slot, start=start, token_ids=token_ids)

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        return self._inner.forward(token_ids, positions, slots)
