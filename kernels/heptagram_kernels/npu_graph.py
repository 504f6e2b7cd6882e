"""A step as an NPUGraph.

Integers that an operator takes from the host are part of the recording. Where attention is mask-driven there are none,
and a replay is one call. Fused attention takes the lengths of its sequences so: it is recorded as a group of tasks of
its own, waits in each replay for an event, and the host sets the lengths of this step from a second stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor

HostArguments = Callable[[], Mapping[str, list[int]]]
"""The host integers of the step to come, by the names in the operator's schema; as many as were captured."""

_pools: dict[int, Any] = {}
_STREAMS_USED_UP: Final = ("207008", "stream resources insufficient", "Alloc sq cq fail")


class NpuGraph:
    """Activations lie in one pool for all graphs of a device: replays follow each other, so buckets share the memory.

    Implements :class:`heptagram_kernels.graph.Graph`.

    Args:
        host_arguments: asked before every replay, where the step has operators that take such.
        runtime: ``torch.npu``; tests bring one that takes notes.
    """

    records = True

    def __init__(self, host_arguments: HostArguments | None = None, runtime: Any = None) -> None:
        self._npu = runtime or _torch_npu()
        self._graph = self._npu.NPUGraph()
        self._host_arguments = host_arguments
        self._captured: Mapping[str, int] = {}
        self._output: Tensor | None = None

    def capture(self, step: Callable[[], Tensor]) -> None:
        """See :meth:`heptagram_kernels.graph.Graph.capture`.

        Raises:
            ValueError: it holds a step already, or nothing in the step takes the host arguments.
            RuntimeError: the device has no streams left for another graph, or an operator cannot be captured.
        """
        if self._output is not None:
            raise ValueError("this graph holds a step already; make another one for another shape")
        npu = self._npu
        pool = _pools.setdefault(npu.current_device(), npu.graph_pool_handle())
        # Libraries allocate and tune in their first calls, which a capture would record or refuse.
        side = npu.Stream()
        side.wait_stream(npu.current_stream())
        with npu.stream(side):
            step()
        npu.current_stream().wait_stream(side)
        updated = self._host_arguments is not None
        try:
            with npu.graph(self._graph, pool=pool, auto_dispatch_capture=updated):
                output = step()
        except RuntimeError as error:
            raise _explained(error) from error
        if self._host_arguments is not None:
            self._captured = {name: len(values) for name, values in self._host_arguments().items()}
            self._check_records()
        self._output = output

    def replay(self) -> Tensor:
        """See :meth:`heptagram_kernels.graph.Graph.replay`.

        Raises:
            ValueError: nothing was captured, or the host arguments are not as many as then.
        """
        if self._output is None:
            raise ValueError("nothing was captured; call capture(step) first")
        if self._host_arguments is not None:
            arguments = dict(self._host_arguments())
            counts = {name: len(values) for name, values in arguments.items()}
            if counts != self._captured:
                raise ValueError(f"host arguments: got {counts} values, captured were {dict(self._captured)}")
            # subtle: the update runs on a stream of its own. Without this wait it could overtake the replay before,
            # whose attention would then see the lengths of this step.
            self._npu.current_stream().synchronize()
            self._graph.update(cpu_update_input=[arguments])
        self._graph.replay()
        return self._output

    def _check_records(self) -> None:
        """torch_npu leaves out, without a word, what no recorded operator was given by keyword."""
        records = self._graph.graph_dispatch_mode.graph_dispatch_records
        for name in self._captured:
            if not records or any(name not in record.kwargs for record in records):
                raise ValueError(
                    f"host argument {name}: {len(records)} operators can be updated, not all of them take it"
                )


def _torch_npu() -> Any:
    from heptagram_kernels.npu import runtime

    return runtime()


def _explained(error: RuntimeError) -> RuntimeError:
    if any(sign in str(error) for sign in _STREAMS_USED_UP):
        return RuntimeError(
            f"the device has no streams left for another graph ({error}); capture fewer batch sizes, and use a driver "
            "(HDK) of 25.5.1 or later"
        )
    return error
