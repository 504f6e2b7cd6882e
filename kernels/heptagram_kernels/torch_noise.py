"""The noise of :mod:`heptagram_kernels.noise` in torch, for any device: wrapping int64 arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

from heptagram_kernels.noise import GAMMA, MULTIPLIERS, SHIFTS, UNIFORM_BITS


def streams(seeds: Tensor, positions: Tensor) -> Tensor:
    """The starts of the positions' streams, int64 [N], to be read as unsigned."""
    return _mix(_mix(seeds + _signed(GAMMA)) + (positions + 1) * _signed(GAMMA))


def uniforms(starts: Tensor, vocab_size: int) -> Tensor:
    """The uniform numbers of all tokens, float64 [N, V]."""
    tokens = torch.arange(1, vocab_size + 1, device=starts.device)
    bits = _mix(starts.unsqueeze(-1) + tokens * _signed(GAMMA))
    return (_shifted(bits, 64 - UNIFORM_BITS).double() + 0.5) * 2.0**-UNIFORM_BITS


def gumbel(starts: Tensor, vocab_size: int) -> Tensor:
    """Standard Gumbel numbers, float64 [N, V]."""
    return -torch.log(-torch.log1p(-uniforms(starts, vocab_size)))


def _mix(state: Tensor) -> Tensor:
    for multiplier, shift in zip(MULTIPLIERS, SHIFTS, strict=False):
        state = (state ^ _shifted(state, shift)) * _signed(multiplier)
    return state ^ _shifted(state, SHIFTS[-1])


def _shifted(state: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; torch's is arithmetic."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
