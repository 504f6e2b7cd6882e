"""Linear layers whose weights are small integers, in the places of :class:`~targets.packed_linear.PackedLinear`.

Rows are quantized as they come and multiplied as integers: ``int8`` with a scale a row and a channel, ``int4`` with one
for each 32 numbers of both, as in GGUF's Q4_1. A row's result depends on nothing but the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor, nn

from heptagram_backend.errors import ReleaseError
from heptagram_kernels import cpu_vnni
from heptagram_kernels.codes import GROUP, Codes, eight_bit_blocks, eight_bits, four_bit_blocks

_QUANTIZE: Final[Mapping[str, Callable[[Tensor], Codes]]] = {"int8": eight_bits, "int4": four_bit_blocks}
_HEAD: Final = {"int8": eight_bits, "int4": eight_bit_blocks}


class CodedLinear(nn.Module):
    """Drop-in for an ``nn.Linear`` of weights [N, K] at inference; K is a multiple of 32."""

    def __init__(self, weight: Codes, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features = weight.codes.shape[0]
        self._product = cpu_vnni.CodedProduct(weight, bias)

    def forward(self, rows: Tensor) -> Tensor:
        return self._product(rows)

    def silu(self, rows: Tensor) -> Tensor:
        """The product under SiLU, applied before it is rounded."""
        return self._product(rows, epilogue="silu")

    def times(self, rows: Tensor, other: Tensor) -> Tensor:
        """The product, element by element times ``other``, rounded once."""
        return self._product(rows, epilogue="times", other=other)


def quantize_linears(model: Any, quantization: str, stored: Mapping[str, Codes]) -> None:
    """Replace the linear layers of ``model``: those named in ``stored`` by these codes, and where there are none at
    all, every one by codes of its weight. A head keeps eight bits.

    Raises:
        ReleaseError: this machine cannot multiply so, or no layer has a shape that it can.
    """
    if fault := cpu_vnni.fault():
        raise ReleaseError(f"engine.quantization: {quantization} on the CPU: {fault}; or set none")
    replaced = 0
    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear or module.in_features % GROUP or (stored and name not in stored):
            continue
        quantize = (_HEAD if name == "lm_head" else _QUANTIZE)[quantization]
        codes = stored[name] if stored else quantize(module.weight.detach())
        bias = None if module.bias is None else module.bias.detach()
        model.set_submodule(name, CodedLinear(codes, bias))
        replaced += 1
    if not replaced:
        raise ReleaseError(
            f"engine.quantization: {quantization}: no linear layer of this checkpoint has a multiple of {GROUP} inputs"
        )
