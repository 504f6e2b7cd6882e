"""Noise as a pure function of (seed, position, token): no state, so every path that asks gets the same number.

SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with Stafford's
variant 13 as its mixing function) is a counter-based generator: number ``n`` of the stream that starts at ``s`` is
``mix(s + n * GAMMA)``. A seed's stream gives each position the start of a stream of its own, whose number
``token + 1`` belongs to ``token``. All arithmetic is modulo 2^64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

GAMMA: Final = 0x9E3779B97F4A7C15
MULTIPLIERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS: Final = (30, 27, 31)
_MASK: Final = 2**64 - 1

UNIFORM_BITS: Final = 52
"""Of 64. One more, and the largest uniform, 1 - 2^-54, would round to 1."""


def stream(seed: int, position: int) -> int:
    """The start of a position's stream, 0 to 2^64 - 1; ``seed`` is any integer, taken modulo 2^64."""
    start = _mix((seed + GAMMA) & _MASK)
    return _mix((start + (position + 1) * GAMMA) & _MASK)


def uniforms(start: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number a token: odd multiples of 2^-53, evenly spread over (0, 1)."""
    state = (tokens.view(np.uint64) + np.uint64(1)) * np.uint64(GAMMA) + np.uint64(start)
    for multiplier, shift in zip(MULTIPLIERS, SHIFTS, strict=False):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(multiplier)
    state ^= state >> np.uint64(SHIFTS[-1])
    state >>= np.uint64(64 - UNIFORM_BITS)
    numbers = state.astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-UNIFORM_BITS
    return numbers


def gumbel(uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard Gumbel numbers. Small uniforms give the large ones, so that the tail which wins is fine-grained."""
    noise: NDArray[np.float64] = -np.log(-np.log1p(-uniform))
    return noise


def _mix(state: int) -> int:
    for multiplier, shift in zip(MULTIPLIERS, SHIFTS, strict=False):
        state = ((state ^ (state >> shift)) * multiplier) & _MASK
    return state ^ (state >> SHIFTS[-1])
