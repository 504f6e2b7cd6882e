"""Capture and replay of a step. The CPU runs it eagerly; a device's own graph has the same face.

A captured step reads and writes the same tensors each time: the caller fills the inputs in place, replays, and reads
the outputs in place. Nothing may be allocated for keeps, and no host value may be baked in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Graph(Protocol):
    """One captured step."""

    def capture(self, step: Callable[[], None]) -> None:
        """Record ``step``, which takes its arguments from persistent tensors. Once only."""

    def replay(self) -> None:
        """Run the recorded step on what the persistent tensors hold now."""


class EagerGraph:
    """Records nothing: a replay calls the step. What the CPU uses."""

    def __init__(self) -> None:
        self._step: Callable[[], None] | None = None

    def capture(self, step: Callable[[], None]) -> None:
        if self._step is not None:
            raise ValueError("this graph holds a step already; make another one for another shape")
        self._step = step

    def replay(self) -> None:
        if self._step is None:
            raise ValueError("nothing was captured; call capture(step) first")
        self._step()
