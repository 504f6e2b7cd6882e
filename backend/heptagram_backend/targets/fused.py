"""Parts of transformers' models in fewer calls: the same mathematics, one rounding instead of two or three.

A part is replaced where its class is known by name; every other one is left as transformers has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor, nn
from torch.nn import functional

from heptagram_backend.targets.packed_linear import PackedLinear
from heptagram_backend.targets.quantized import CodedLinear
from heptagram_kernels.layout import ROWS

_CHUNK_ROWS: Final = 32 * ROWS


class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``: activation and gate are applied inside the products.

    Rows do not see each other here, so a long prompt goes through a chunk at a time into one output: the activations
    between the products, several times as wide, never take more than a chunk's.
    """

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = theirs.gate_proj, theirs.up_proj, theirs.down_proj

    def forward(self, rows: Tensor) -> Tensor:
        *batch, total, _ = rows.shape
        if total <= _CHUNK_ROWS:
            return self._chunk(rows)
        output = rows.new_empty((*batch, total, self.down_proj.out_features))
        for start in range(0, total, _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            output[..., part, :] = self._chunk(rows[..., part, :])
        return output

    def _chunk(self, rows: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self.up_proj.times(rows, self.gate_proj.silu(rows)))
        return output


class RMSNorm(nn.Module):
    """``weight * x / rms(x)`` by torch's own operation."""

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self._weight: Tensor = theirs.weight.detach()
        self._epsilon: float = theirs.variance_epsilon

    def forward(self, rows: Tensor) -> Tensor:
        return functional.rms_norm(rows, self._weight.shape, self._weight, self._epsilon)


_FAMILIES: Final = ("Llama", "Qwen2", "Qwen3")
_SILU: Final = ("SiLU", "SiLUActivation")
_PARTS: Final[dict[str, Callable[[Any], nn.Module]]] = {
    f"{family}{part}": made for family in _FAMILIES for part, made in (("MLP", GatedMLP), ("RMSNorm", RMSNorm))
}


def fuse_parts(model: nn.Module) -> None:
    """Replace what is known inside ``model``, whose linear layers are packed or coded already."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            made = _PARTS.get(type(child).__name__)
            if made is not None and _fits(child):
                setattr(module, name, made(child))


def _fits(part: nn.Module) -> bool:
    activation = getattr(part, "act_fn", None)
    if activation is None:
        return True
    return type(activation).__name__ in _SILU and all(
        isinstance(getattr(part, name), (PackedLinear, CodedLinear)) for name in ("gate_proj", "up_proj", "down_proj")
    )
