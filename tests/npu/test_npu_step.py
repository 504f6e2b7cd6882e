"""The whole step with the operations for Ascend, on the CPU and on torch's ``meta`` device: no NPU has run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import load_device
from heptagram_kernels.ops import load_ops
from tests.npu.tracing import HostSyncError, Trace
from tests.npu.whole_step import WholeStep, begin, masked_attention

REFERENCE = replace(load_device("cpu"), ops=load_ops("reference"))


def _held(step: WholeStep) -> dict[str, Tensor]:
    return {spec.name: getattr(step.buffers, spec.name) for spec in fields(K7Buffers)} | {
        "keys": step.keys,
        "values": step.values,
    }


def test_three_steps_leave_on_the_cpu_what_the_reference_operations_leave() -> None:
    ours = WholeStep("cpu", torch.float32, masked_attention())
    theirs = WholeStep("cpu", torch.float32, masked_attention(), operations=REFERENCE)
    for step in (ours, theirs):
        begin(step)
        for _ in range(3):
            step()
    assert (ours.buffers.state_positions[:2] > torch.tensor([5, 22])).all(), "every step takes a token"
    expected = _held(theirs)
    for name, tensor in _held(ours).items():
        torch.testing.assert_close(tensor, expected[name], msg=name)


def test_the_step_waits_for_no_value_and_touches_no_host_tensor_on_the_meta_device() -> None:
    step = WholeStep("meta", torch.bfloat16, masked_attention())
    with torch.no_grad(), Trace("meta") as trace:
        step()
    assert trace.calls.total() > 500


def test_steps_keep_no_tensor_that_they_made_and_every_buffer_its_address() -> None:
    on_meta, step = (WholeStep(device, torch.float32, masked_attention()) for device in ("meta", "cpu"))
    with torch.no_grad(), Trace("meta") as trace:
        for _ in range(2):
            on_meta()
    assert not trace.kept()
    begin(step)
    before = {name: tensor.data_ptr() for name, tensor in _held(step).items()}
    for _ in range(2):
        step()
    assert {name: tensor.data_ptr() for name, tensor in _held(step).items()} == before


@pytest.mark.parametrize(
    "wait",
    [
        lambda tensor: tensor.sum().item(),
        lambda tensor: tensor.nonzero(),
        lambda tensor: tensor[tensor > 0],
        lambda tensor: tensor.masked_select(tensor > 0),
        lambda tensor: bool(tensor.any()),
        lambda tensor: torch.equal(tensor, tensor),
        lambda tensor: tensor.index_put_((tensor > 0,), tensor[0]),
    ],
)
def test_the_trace_refuses_what_waits_for_a_value(wait: Callable[[Tensor], object]) -> None:
    with pytest.raises(HostSyncError, match="depends on values"), Trace("cpu"):
        wait(torch.ones(3))


def test_the_trace_refuses_copies_between_the_devices_and_finds_what_is_kept() -> None:
    with Trace("meta") as trace:
        tensor = torch.zeros(3, device="meta")
        with pytest.raises(HostSyncError, match="has tensors on \\['cpu'\\]"):
            tensor.copy_(torch.zeros(3))
        kept = [tensor + 1]
    assert [id(one) for one in trace.kept()] == [id(tensor), id(kept[0])]
