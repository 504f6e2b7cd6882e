"""What a step gives to its device, operator by operator."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_BRINGS_VALUES_TO_THE_HOST = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class HostSyncError(AssertionError):
    """The host would have to wait for the device, or the device for the host."""


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, and refuses those that no graph can hold.

    Those are the ones whose result or its shape depends on values (``item``, ``nonzero``, indexing by a bool tensor),
    and all that touch a tensor of another device than ``device``, such as copies to and from the host.
    """

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[OpOverload] = Counter()
        self._device = device
        self._made: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "prim":  # asks for a device or a layout
            return func(*args, **(kwargs or {}))
        if _waits(func, args):
            raise HostSyncError(f"{func}: its result depends on values, for which the host would wait")
        out = func(*args, **(kwargs or {}))
        given, made = (_tensors(tree) for tree in ((args, kwargs), out))
        if strangers := {tensor.device.type for tensor in (*given, *made)} - {self._device}:
            raise HostSyncError(f"{func}: has tensors on {sorted(strangers)}, not on {self._device}")
        self.calls[func] += 1
        self._made += [weakref.ref(tensor) for tensor in made if all(tensor is not other for other in given)]
        return out

    def kept(self) -> list[Tensor]:
        """Tensors that operators made and that live on."""
        return [tensor for made in self._made if (tensor := made()) is not None]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _waits(func: OpOverload, args: tuple[Any, ...]) -> bool:
    if func in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return any(tag in func.tags for tag in _BRINGS_VALUES_TO_THE_HOST)
