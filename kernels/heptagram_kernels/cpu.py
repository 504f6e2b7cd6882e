"""The CPU as a device; what it computes is in :mod:`heptagram_kernels.cpu_ops` and beside it."""

from __future__ import annotations

import torch

from heptagram_kernels.cpu_sampling import token_logprobs, verify_sampled

__all__ = ["select", "token_logprobs", "verify_sampled"]


def select(index: int) -> torch.device:
    """See :class:`heptagram_kernels.devices.DeviceModule`."""
    if index:
        raise ValueError(f"cpu:{index}: there is one CPU only")
    return torch.device("cpu")
