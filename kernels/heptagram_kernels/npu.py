"""Ascend devices: the one module that imports torch_npu, which adds ``torch.npu`` and ``torch.ops.npu``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from heptagram_kernels.npu_verify import token_logprobs, verify_sampled

try:
    import torch_npu  # noqa: F401
except (ImportError, OSError) as error:
    raise ImportError(
        f"device npu: torch_npu does not import ({error}); install heptagram[npu] and CANN, and source CANN's "
        "set_env.sh before the start"
    ) from error

__all__ = ["MemoryReport", "memory_report", "runtime", "select", "token_logprobs", "verify_sampled"]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of one device: ``allocated`` by live tensors, of what is ``reserved`` by torch; ``free`` for everyone."""

    allocated: int
    reserved: int
    free: int
    total: int


def runtime() -> Any:
    """``torch.npu``, which type checkers know nothing of."""
    return torch.npu  # type: ignore[attr-defined]


def select(index: int = 0, environment: Mapping[str, str] = os.environ) -> torch.device:
    """Make a device the process's own, ready to capture on.

    Raises:
        ValueError: there is no such device, or the environment rules graphs out.
    """
    npu = runtime()
    count = npu.device_count()
    if not 0 <= index < count:
        raise ValueError(f"npu:{index}: this process sees {count} NPUs (`npu-smi info`, ASCEND_RT_VISIBLE_DEVICES)")
    if environment.get("ASCEND_LAUNCH_BLOCKING") == "1":
        raise ValueError("ASCEND_LAUNCH_BLOCKING=1 waits behind every operator, which no graph can hold; unset it")
    npu.set_device(index)
    npu.set_compile_mode(jit_compile=False)  # only operators that come compiled can be captured
    return torch.device("npu", index)


def memory_report() -> MemoryReport:
    """The selected device's memory, after all that was launched has run."""
    npu = runtime()
    npu.synchronize()
    free, total = npu.mem_get_info()
    return MemoryReport(npu.memory_allocated(), npu.memory_reserved(), free, total)
