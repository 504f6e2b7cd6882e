"""Linear layers of a decoder: plain ones, and ones whose weights lie in the block order that oneDNN multiplies in.

A plain product reorders its weight at every call; at the 8 rows of a K7 step that is nearly half of the time. Packed
products also apply what follows them, an activation or another operand, while the result is still in a register.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from heptagram_kernels.layout import ROWS


class Linear(Protocol):
    """A weight [N, K] and perhaps a bias [N]; ``rows`` is [T, K], ``other`` and results are [T, N]."""

    @property
    def width(self) -> int:
        """N."""

    def __call__(self, rows: Tensor) -> Tensor: ...

    def silu(self, rows: Tensor) -> Tensor:
        """The product under SiLU."""

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        """The product, element by element times ``other``."""

    def plus(self, rows: Tensor, other: Tensor) -> Tensor:
        """The product plus ``other``."""


class PlainLinear:
    """By torch's own linear: any dtype and processor."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    @property
    def width(self) -> int:
        return self._weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self._weight, self._bias)

    def silu(self, rows: Tensor) -> Tensor:
        return functional.silu(self(rows))

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        return self(rows) * other

    def plus(self, rows: Tensor, other: Tensor) -> Tensor:
        return self(rows) + other


class PackedLinear:
    """By oneDNN on a weight that is packed once; see :func:`can_pack`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._width = weight.shape[0]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self._bias = bias

    @property
    def width(self) -> int:
        return self._width

    def __call__(self, rows: Tensor) -> Tensor:
        return self._unary(rows, "none")

    def silu(self, rows: Tensor) -> Tensor:
        return self._unary(rows, "swish")

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        return self._binary(rows, other, "mul")

    def plus(self, rows: Tensor, other: Tensor) -> Tensor:
        return self._binary(rows, other, "add")

    def _unary(self, rows: Tensor, name: str) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, self._weight, self._bias, name, [], "")
        return output

    def _binary(self, rows: Tensor, other: Tensor, name: str) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, other, self._weight, self._bias, name)
        return output


def can_pack(dtype: torch.dtype) -> bool:
    """This build and processor multiply ``dtype`` with packed weights."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear_for(dtype: torch.dtype) -> type[PlainLinear] | type[PackedLinear]:
    """The faster kind of linear layer here."""
    return PackedLinear if can_pack(dtype) else PlainLinear
