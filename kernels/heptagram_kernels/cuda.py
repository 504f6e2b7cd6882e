"""CUDA GPUs as a device; kernels are in :mod:`heptagram_kernels.cuda_ops`, graphs in :mod:`.graph_cuda`.

Written against torch's and Triton's interfaces. On a machine without a GPU the kernels run in Triton's interpreter and
compile for one, and the rest is traced on fake tensors; ``kernels/device_check.py`` runs all of it on a GPU.
"""

from __future__ import annotations

import torch

from heptagram_kernels.reference_sampling import token_logprobs
from heptagram_kernels.torch_sampling import verify_sampled

__all__ = ["select", "token_logprobs", "verify_sampled"]


def select(index: int) -> torch.device:
    """See :class:`heptagram_kernels.devices.DeviceModule`. Products are summed in float32 from here on.

    Raises:
        ValueError: there is no such GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not 0 <= index < count:
        raise ValueError(f"cuda:{index}: this process sees {count} GPUs (`nvidia-smi`, CUDA_VISIBLE_DEVICES)")
    torch.cuda.set_device(index)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return torch.device("cuda", index)
