"""The CUDA device on a machine without a GPU: traced on torch's meta device, where there are no values to read.

That proves shapes, dtypes and devices of all that is plain torch, and that nothing in it waits for a value, as a
captured graph must not. It runs no kernel; ``kernels/device_check.py`` does, on a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from heptagram_kernels import torch_sampling
from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device, load_device
from heptagram_kernels.layout import Bindings
from heptagram_kernels.ops import load_ops
from heptagram_kernels.program import K7Program
from heptagram_kernels.sampling_warm_up import every_branch
from heptagram_kernels.workspace import Workspace

V, SLOTS = 70, 4
CPU = load_device("cpu")


def _forward(token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
    del positions, slots
    return torch.nn.functional.one_hot(token_ids, V).float()


def _traced(device: Device) -> K7Buffers:
    """Warm up every bucket, greedy and sampled, on tensors without storage."""
    workspace = Workspace("step", device="meta")
    workspace.reserve(K7Buffers.declarations(Bindings(batch=SLOTS, vocab_size=V, pool_rows=3, slots=SLOTS)))
    buffers = K7Buffers.take(workspace)
    program = K7Program(buffers, device=device, forward=_forward, batches=(1, SLOTS), real_tokens=V)
    program.warm_up(vocab_size=V, dtype=torch.bfloat16)
    views = program.bucket(SLOTS)
    program.settle(views, program.forward(views), every_branch(torch.device("meta")))
    assert program.misses == 0
    return buffers


def test_a_step_greedy_or_sampled_waits_for_no_value_and_stays_on_its_device() -> None:
    device = replace(CPU, ops=load_ops("reference"), verify_sampled=torch_sampling.verify_sampled)
    buffers = _traced(device)
    assert {getattr(buffers, name).device.type for name in K7Buffers.__slots__} == {"meta"}


def test_the_trace_finds_what_waits() -> None:
    with pytest.raises(RuntimeError, match=r"item\(\) cannot be called on meta tensors"):
        _traced(replace(CPU, ops=load_ops("reference"), verify_sampled=_waiting))


def _waiting(*, sampling: object, draft_counts: Tensor, **arguments: object) -> None:
    del sampling, arguments
    int(draft_counts[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_with_where_to_look() -> None:
    pytest.importorskip("triton")
    with pytest.raises(ValueError, match=r"cuda:0: this process sees 0 GPUs \(`nvidia-smi`"):
        load_device("cuda").select(0)
