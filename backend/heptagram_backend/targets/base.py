"""What the K7 step needs of a target model. A runner owns the weights and the key/value cache, not the requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Target(Protocol):
    """A causal language model over ``num_slots`` independent cache slots of ``max_model_len`` tokens each."""

    @property
    def vocab_size(self) -> int:
        """V: the width of the logits, which may exceed the number of real tokens."""

    @property
    def num_slots(self) -> int: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def prefill_chunk(self) -> int:
        """Rows of one prefill forward; a multiple of 8."""

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """Write the cache rows ``start .. start + len(token_ids)`` of ``slot``; at most ``prefill_chunk`` tokens.

        ``start`` is a multiple of ``prefill_chunk``, so that a prompt is always cut at the same places.
        """

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """One K7 forward.

        Args:
            token_ids: int64 [B, 8], the anchor and seven drafts of each sequence; dead rows hold 0.
            positions: int64 [B], the position of each anchor; row ``r`` stands at ``positions + r``.
            slots: int64 [B], the cache slot of each sequence.

        Returns:
            Logits [B, 8, V], valid until the next call. Cache rows ``positions .. positions + 8`` are written; those
            behind the accepted prefix are rewritten by the next forward before anything reads them.
        """
