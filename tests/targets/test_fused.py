"""A long prompt's projections in chunks: the same bits, and activations that do not grow with the prompt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from heptagram_backend.targets.fused import GatedMLP
from heptagram_backend.targets.packed_linear import PackedLinear, can_pack

WIDTH, INNER = 64, 384
DTYPES = [dtype for dtype in (torch.float32, torch.bfloat16) if can_pack(dtype)]


def _mlp(dtype: torch.dtype) -> GatedMLP:
    torch.manual_seed(0)
    sizes = {"gate_proj": (WIDTH, INNER), "up_proj": (WIDTH, INNER), "down_proj": (INNER, WIDTH)}
    layers: dict[str, Any] = {
        name: PackedLinear(nn.Linear(*size, bias=False).to(dtype)) for name, size in sizes.items()
    }
    return GatedMLP(SimpleNamespace(**layers))


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Most bytes that new tensors held at a time; views of ``given`` are not new."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given = given.untyped_storage()._cdata
        self._held: dict[int, tuple[Any, int]] = {}
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        del types
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and (storage := out.untyped_storage())._cdata != self._given:
            self._held[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        self._held = {key: entry for key, entry in self._held.items() if not entry[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self._held.values()))
        return out


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_chunks_give_the_same_bits(dtype: torch.dtype) -> None:
    mlp = _mlp(dtype)
    for total in (8, 256, 264, 1024, 1160):
        rows = torch.randn(1, total, WIDTH).to(dtype)
        before = rows.clone()
        assert torch.equal(mlp(rows), mlp._chunk(rows)), total
        assert torch.equal(rows, before), "an input was changed"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_the_activations_of_a_long_prompt_take_a_chunks_memory(dtype: torch.dtype) -> None:
    mlp = _mlp(dtype)
    peaks = {}
    for total in (256, 4096):
        rows = torch.randn(1, total, WIDTH).to(dtype)
        with Peak(rows) as peak:
            mlp(rows)
        peaks[total] = peak.bytes
    size = dtype.itemsize
    # Gate and product of one chunk, its output, and the whole output.
    assert peaks[4096] <= (2 * 256 * INNER + 256 * WIDTH + 4096 * WIDTH) * size
    assert peaks[256] <= 3 * 256 * INNER * size
