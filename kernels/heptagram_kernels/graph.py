"""Capture and replay of a step. The CPU runs it eagerly; a device's own graph has the same face.

A captured step reads and writes the same tensors each time: the caller fills the inputs in place, replays, and reads
the outputs in place. Nothing may be allocated for keeps, and no host value may be baked in.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol, cast

from torch import Tensor

GRAPHS: Final[dict[str, str]] = {
    "cpu": "heptagram_kernels.graph:EagerGraph",
    "cuda": "heptagram_kernels.graph_cuda:CudaGraph",
    "npu": "heptagram_kernels.npu_graph:NpuGraph",
}
"""Graphs by device; each is imported when it is used."""


class Graph(Protocol):
    """One captured step. ``records``: a replay repeats kernels on fixed addresses, the step itself is not called."""

    records: bool

    def capture(self, step: Callable[[], Tensor]) -> None:
        """Record ``step``, which takes its arguments from persistent tensors. Once only."""

    def replay(self) -> Tensor:
        """Run the recorded step on what the persistent tensors hold now, and return what it returns.

        A graph that records gives the same tensor each time, which the next replay overwrites.
        """


class EagerGraph:
    """Records nothing: a replay calls the step, and what it has consumed is released as it goes. What the CPU uses."""

    records = False

    def __init__(self) -> None:
        self._step: Callable[[], Tensor] | None = None

    def capture(self, step: Callable[[], Tensor]) -> None:
        if self._step is not None:
            raise ValueError("this graph holds a step already; make another one for another shape")
        self._step = step

    def replay(self) -> Tensor:
        if self._step is None:
            raise ValueError("nothing was captured; call capture(step) first")
        return self._step()


def load_graph(device: str) -> Callable[[], Graph]:
    """What makes the graphs of a device.

    Raises:
        ValueError: there is none; the message names those that are.
    """
    if device not in GRAPHS:
        raise ValueError(f"device {device!r}: has no graphs here; choose one of {', '.join(sorted(GRAPHS))}")
    module, _, name = GRAPHS[device].partition(":")
    return cast("Callable[[], Graph]", getattr(import_module(module), name))
