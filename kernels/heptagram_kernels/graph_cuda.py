"""A step as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_pools: dict[int, Any] = {}


class CudaGraph:
    """Activations lie in one pool for all graphs of a device: replays follow each other, so buckets share the memory.

    Implements :class:`heptagram_kernels.graph.Graph`.
    """

    records = True

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._output: Tensor | None = None

    def capture(self, step: Callable[[], Tensor]) -> None:
        if self._output is not None:
            raise ValueError("this graph holds a step already; make another one for another shape")
        device = torch.cuda.current_device()
        pool = _pools.setdefault(device, torch.cuda.graph_pool_handle())
        # Libraries allocate and tune in their first calls, which a capture would record or refuse.
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph, pool=pool):
            self._output = step()

    def replay(self) -> Tensor:
        if self._output is None:
            raise ValueError("nothing was captured; call capture(step) first")
        self._graph.replay()
        return self._output
