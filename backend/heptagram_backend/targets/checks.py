"""What is wrong with a call of a target. These are faults of the engine, never of a request."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from heptagram_backend.targets.base import Target
from heptagram_kernels.layout import ROWS


def check_prefill(target: Target, *, start: int, count: int) -> None:
    """Raises:
    ValueError: the prompt is not cut where :meth:`Target.prefill` wants it, or it is too long.
    """
    chunk = target.prefill_chunk
    if start % chunk or not 0 < count <= chunk or start + count > target.max_model_len:
        raise ValueError(
            f"prefill of {count} tokens at {start}: cut the prompt at multiples of {chunk} "
            f"and keep it within max_model_len = {target.max_model_len}"
        )


def check_rows(target: Target, *, start: int, count: int) -> None:
    """Raises:
    ValueError: a paged target cannot take this part of a prompt.
    """
    if start % ROWS or not 0 < count <= target.prefill_chunk or start + count > target.max_model_len:
        raise ValueError(
            f"prefill of {count} tokens at {start}: begin at a multiple of {ROWS}, give at most "
            f"{target.prefill_chunk} and keep it within max_model_len = {target.max_model_len}"
        )


def check_step(target: Target, token_ids: Tensor, places: Sequence[tuple[int, int]]) -> None:
    """Check a forward of ``token_ids`` at the (slot, position) in ``places``.

    Raises:
        ValueError: a shape, a slot or a position is wrong.
    """
    if token_ids.shape != (len(places), ROWS):
        raise ValueError(f"token_ids: got {list(token_ids.shape)}, need [{len(places)}, {ROWS}]")
    slots = {slot for slot, _ in places}
    if len(slots) != len(places) or not slots <= set(range(target.num_slots)):
        raise ValueError(f"slots: must be distinct and below {target.num_slots}")
    if any(not 0 <= position < target.max_model_len for _, position in places):
        raise ValueError(f"positions: must be 0 to {target.max_model_len - 1} (max_model_len - 1)")
