"""What a step costs by its rows and sequences, learnt from the steps themselves. No torch."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

EIGHT: Final = 8
"""Rows that a device computes at once: fewer cost as much."""

_CPU: Final = (1.0, 0.35, 0.05)
_ACCELERATOR: Final = (1.0, 0.02, 0.005)
_DOUBT: Final = 0.5  # of each part of the guess, as a share of it
_DRIFT: Final = 0.01  # of each part from step to step: contexts grow, other processes come and go
_NOISE: Final = 0.1  # of one step's time
_STRANGE: Final = 0.5  # a step that misses what was expected by more tells no more than this


def rounded(rows: int) -> int:
    """Up to a multiple of eight."""
    return -(-rows // EIGHT) * EIGHT


class StepCost:
    """A step takes a time of its own, one for every eight rows, and one for every sequence.

    The three are followed by a Kalman filter, as a random walk that each step shows one sum of. So what steps do not
    tell apart stays in the proportion that it had, at first that of a guess for the ``device``.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._parts: NDArray[np.float64] = np.array(_CPU if device == "cpu" else _ACCELERATOR)
        self._doubts: NDArray[np.float64] | None = None  # covariance [3, 3]; None: nothing was seen yet

    def seconds(self, rows: int, sequences: int) -> float:
        """Expected for a step of ``rows``, in seconds once a step was observed; positive, and never less for more."""
        return float(_sum_of(rows, sequences) @ np.maximum(self._parts, (1e-9, 0.0, 0.0)))

    def observe(self, rows: int, sequences: int, seconds: float) -> None:
        """A step took so long."""
        shown = _sum_of(rows, sequences)
        if self._doubts is None:
            self._parts *= seconds / float(shown @ self._parts)
            self._doubts = np.diag((_DOUBT * self._parts) ** 2)
            return
        expected = self.seconds(rows, sequences)
        doubts = self._doubts + np.diag((_DRIFT * self._parts) ** 2)
        along = doubts @ shown
        gain = along / (float(shown @ along) + (_NOISE * expected) ** 2)
        error = seconds - float(shown @ self._parts)
        self._parts = self._parts + gain * min(max(error, -_STRANGE * expected), _STRANGE * expected)
        self._doubts = doubts - np.outer(gain, along)


def _sum_of(rows: int, sequences: int) -> NDArray[np.float64]:
    return np.array([1.0, rounded(rows) / EIGHT, sequences])
