"""Linear layers whose weights lie in the block order that oneDNN multiplies in.

``torch.nn.Linear`` reorders its weight at every call; at the 8 rows of a K7 step that is nearly half of the time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heptagram_kernels.layout import ROWS


class PackedLinear(nn.Module):
    """Drop-in for a bias-free or biased ``nn.Linear`` at inference."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        return self._product(rows, "none")

    def silu(self, rows: Tensor) -> Tensor:
        """The product under SiLU, applied before it is rounded."""
        return self._product(rows, "swish")

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        """The product, element by element times ``other``, rounded once."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, other, self._weight, self._bias, "mul")
        return output

    def _product(self, rows: Tensor, activation: str) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, self._weight, self._bias, activation, [], "")
        return output


def can_pack(dtype: torch.dtype) -> bool:
    """This build and processor multiply ``dtype`` with packed weights."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack_linears(model: nn.Module) -> None:
    """Replace every ``nn.Linear`` inside ``model``; the plain weights are released where nothing else holds them."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
