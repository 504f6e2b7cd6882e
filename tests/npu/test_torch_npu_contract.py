"""The step against torch_npu's own registrations: which operators, with which arguments, in which order.

``make test-npu`` runs this with the real torch_npu and stub CANN libraries. It proves that the whole step can be traced
on ``npu:0``, that every operator takes what it is given and has a kernel there, that nothing in it touches the host,
and what torch_npu's graphs do with the lengths. It does not run a kernel: values, speed, what a kernel does with a
dtype, and the capture itself are unproven until there is a device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import _scoped_library

from heptagram_kernels.layout import ROWS, words_for
from heptagram_kernels.npu_attention import Attention, FusedAttention
from heptagram_kernels.npu_graph import NpuGraph
from heptagram_kernels.ops import load_ops
from tests.npu.runtime import Noted
from tests.npu.tracing import HostSyncError, Trace
from tests.npu.whole_step import BATCH, BLOCK, KEY_HEADS, V, WholeStep, masked_attention

pytestmark = pytest.mark.npu

GRAPHS: Final = "torch_npu.npu.graphs"
COMPOSED: Final = {
    "aten::_unsafe_view": ("aten::view",),
    "aten::masked_fill.Scalar": ("aten::clone", "aten::masked_fill_.Scalar"),
    "aten::new_empty": ("aten::empty.memory_format",),
    "aten::zeros_like": ("aten::empty_like", "aten::zero_"),
}
"""Operators that torch makes of others before a device sees them."""


@pytest.fixture(scope="module", autouse=True)
def npu() -> Any:
    from heptagram_kernels import npu

    return npu.runtime()


@pytest.fixture
def fake() -> Iterator[None]:
    with torch.no_grad(), FakeTensorMode():
        yield


def fused_attention() -> FusedAttention:
    device = torch.device("npu", 0)
    return FusedAttention(block_size=BLOCK, key_heads=KEY_HEADS, batch=BATCH, rows=ROWS, device=device)


def has_kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")


def named(call: OpOverload) -> str:
    return str(call.name())  # type: ignore[no-untyped-call]


def kernel(call: OpOverload) -> str | None:
    """What runs an operator there; None where torch_npu would bring it to the CPU, or has nothing at all."""
    name = named(call)
    if has_kernel(name):
        return "a kernel of torch_npu"
    if call.is_view:
        return "no kernel: a view"
    parts = COMPOSED.get(name, ())
    return " and ".join(parts) if parts and all(map(has_kernel, parts)) else None


def without_kernel(trace: Trace) -> list[str]:
    return [named(call) for call in trace.calls if kernel(call) is None]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("attention", "dtype"),
    [(masked_attention, torch.bfloat16), (masked_attention, torch.float32), (fused_attention, torch.bfloat16)],
)
def test_the_whole_step_can_be_traced_on_npu_0_without_the_host_and_every_operator_has_a_kernel_there(
    attention: Callable[[], Attention], dtype: torch.dtype
) -> None:
    step = WholeStep("npu:0", dtype, attention())
    with Trace("npu") as trace:
        counts = step()
    print(f"{len(trace.calls)} operators, {trace.calls.total()} calls")  # noqa: T201
    for call, count in sorted(trace.calls.items(), key=lambda item: named(item[0])):
        print(f"{count:5} {named(call)}: {kernel(call)}")  # noqa: T201
    assert (counts.shape, counts.device) == ((BATCH,), torch.device("npu", 0))
    assert not without_kernel(trace)
    assert trace.calls.total() > 500
    npu_operators = {named(call) for call in trace.calls if call.namespace == "npu"}
    fused = {"npu::npu_fused_infer_attention_score"} if attention is fused_attention else set()
    assert npu_operators == {"npu::npu_scatter_nd_update_"} | fused


@pytest.mark.usefixtures("fake")
def test_steps_on_npu_0_keep_no_tensor_that_they_made() -> None:
    step = WholeStep("npu:0", torch.bfloat16, masked_attention())
    with Trace("npu") as trace:
        for _ in range(2):
            step()
    assert not trace.kept()


@pytest.mark.usefixtures("fake")
def test_the_gate_finds_operators_without_a_kernel_and_copies_to_the_host() -> None:
    tensor = torch.zeros(3, dtype=torch.int64, device="npu:0")
    with Trace("npu") as trace:
        tensor.cumprod(0)
        torch.bitwise_left_shift(tensor, tensor)
        with pytest.raises(HostSyncError, match="has tensors on"):
            tensor.cpu()
    assert without_kernel(trace) == ["aten::cumprod", "aten::bitwise_left_shift.Tensor"]


@pytest.mark.usefixtures("fake")
def test_the_operations_beside_the_step_have_a_kernel_for_every_operator_on_npu_0() -> None:
    def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device="npu:0")

    ops = load_ops("npu")
    with Trace("npu") as trace:
        ops.masked_sample(
            logits=zeros(2, V, dtype=torch.bfloat16),
            mask_pool=zeros(3, words_for(V), dtype=torch.int32),
            mask_rows=zeros(2),
            real_tokens=V,
            seeds=zeros(2),
            positions=zeros(2),
            temperature=zeros(2, dtype=torch.float64),
            out=zeros(2),
        )
        ops.verify_chain(
            chosen=zeros(2, 8),
            token_ids=zeros(2, 8),
            draft_counts=zeros(2),
            room=zeros(2),
            stop_ids=zeros(3),
            out_tokens=zeros(2, 8),
            out_counts=zeros(2),
            out_finished=zeros(2),
        )
        ops.kv_gather(
            cache=zeros(64, 4, dtype=torch.bfloat16),
            block_tables=zeros(3, 4),
            slots=zeros(2),
            block_size=16,
            out=zeros(2, 20, 4, dtype=torch.bfloat16),
        )
        ops.scatter_rows(pool=zeros(4, 3, dtype=torch.int32), rows=zeros(2, 3, dtype=torch.int32), places=zeros(2))
    assert not without_kernel(trace)


@pytest.mark.usefixtures("fake")
def test_an_argument_that_torch_npu_does_not_know_fails_the_trace() -> None:
    tensor = torch.zeros((8, 4, 16), dtype=torch.bfloat16, device="npu:0")
    with pytest.raises(RuntimeError, match="kv_lengths"):
        torch.ops.npu.npu_fused_infer_attention_score(tensor, tensor, tensor, kv_lengths=[8])


def test_what_the_graph_calls_is_there_and_takes_the_same_arguments(npu: Any) -> None:
    for name in ("NPUGraph", "Stream", "current_device", "current_stream", "graph_pool_handle", "stream"):
        assert callable(getattr(npu, name))
    for name in ("device_count", "mem_get_info", "memory_allocated", "memory_reserved", "set_device", "synchronize"):
        assert callable(getattr(npu, name))
    inspect.signature(npu.graph).bind(object(), pool=(0, 0), auto_dispatch_capture=True)
    inspect.signature(npu.NPUGraph.update).bind(object(), cpu_update_input=[{}])
    inspect.signature(npu.NPUGraph.replay).bind(object())
    inspect.signature(npu.set_compile_mode).bind(jit_compile=False)
    assert torch.get_device_module(torch.device("npu")) is npu, "where mask rows find their fence"
    assert callable(npu.Event.record)
    assert callable(npu.Event.synchronize)
    assert callable(npu.Stream.wait_stream)
    assert callable(npu.Stream.synchronize)


class RealDispatch(Noted):
    """The stand-in, with torch_npu's own mode for what a capture records and an update sets."""

    def NPUGraph(self) -> Any:  # noqa: N802
        graph = super().NPUGraph()
        graph.graph_dispatch_mode = import_module(GRAPHS)._GraphDispatchMode()
        graph.update = lambda cpu_update_input: graph.graph_dispatch_mode.update_capture_record(cpu_update_input)
        return graph

    @contextmanager
    def graph(self, graph: Any, *, pool: Any, auto_dispatch_capture: bool) -> Iterator[None]:
        with graph.graph_dispatch_mode if auto_dispatch_capture else nullcontext():
            yield


@pytest.fixture
def runtime(npu: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealDispatch]:
    """Notes what torch_npu asks of its device in capture and update; three operators get the fake kernels they lack."""
    runtime = RealDispatch()
    note = runtime.notes.append

    def event() -> Any:
        calls = ("wait", "reset", "record")
        return SimpleNamespace(**{call: lambda _, call=call: note(f"event {call}") for call in calls})

    def attended(*args: Any, out: list[Tensor], **kwargs: Any) -> tuple[Tensor, ...]:
        note(("attention", list(kwargs["actual_seq_lengths"]), list(kwargs["actual_seq_lengths_kv"])))
        return tuple(out)

    for name, calls in {
        "graph_task_group_begin": lambda stream: note("group begins"),
        "graph_task_group_end": lambda stream: note("group ends") or "a group",
        "graph_task_update_begin": lambda stream, handle: note(f"update of {handle} begins"),
        "graph_task_update_end": lambda stream: note("update ends"),
        "TensorWeakRef": lambda tensor: tensor,
    }.items():
        monkeypatch.setattr(f"{GRAPHS}.{name}", calls)
    monkeypatch.setattr("torch_npu.npu._npugraph_handlers.npugraph_handler.TensorWeakRef", lambda tensor: tensor)
    monkeypatch.setattr(npu, "ExternalEvent", event)
    monkeypatch.setattr(npu, "Stream", runtime.Stream)
    monkeypatch.setattr(npu, "current_stream", runtime.current_stream)
    monkeypatch.setattr(npu, "stream", lambda stream: nullcontext())
    fused = "npu_fused_infer_attention_score"
    with _scoped_library("npu", "IMPL") as library:
        library.impl(f"_{fused}_get_max_workspace", lambda query, *_, **__: query.new_empty(0), "Meta")
        library.impl(
            f"_{fused}_infer_output", lambda query, *_, **__: (torch.empty_like(query), query.new_empty(1)), "Meta"
        )
        library.impl(f"{fused}.out", attended, "Meta")
        yield runtime


@pytest.mark.usefixtures("fake")
def test_torch_npus_own_dispatch_records_the_fused_attention_and_gives_it_the_lengths_of_each_replay(
    runtime: RealDispatch,
) -> None:
    attention = fused_attention()
    graph = NpuGraph(attention.host_arguments, runtime)
    graph.capture(WholeStep("npu:0", torch.bfloat16, attention))
    captured = ["event wait", "event reset", "group begins", ("attention", [8, 16], [8, 8]), "group ends"]
    assert runtime.notes[-5:] == captured
    runtime.notes.clear()
    attention.set_positions([5])
    graph.replay()
    assert runtime.notes == [
        "current synchronized",
        "update of a group begins",
        ("attention", [8, 16], [13, 8]),
        "update ends",
        "event record",
        "replay",
    ]
