"""Weights and activations as small integers: what the codes mean, how they are found, and the oracle of the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

GROUP: Final = 32
"""Codes that share a scale, and a minimum, in the blocks of GGUF: Q8_0 and Q4_1."""
_LARGEST: Final = 127


@dataclass(frozen=True, slots=True)
class Codes:
    """A weight [N, K]: ``codes * scales + minimums``, with G scales a channel.

    G = 1: int8, and rows are quantized whole. G = K / 32: int8, or 0 to 15 with minimums; so are rows, each 32 numbers.
    """

    bits: int
    codes: Tensor  # int8 [N, K]
    scales: Tensor  # float32 [N, G]
    minimums: Tensor | None = None  # float32 [N, G]

    @property
    def grouped(self) -> bool:
        return self.bits == 4 or self.scales.shape[1] > 1

    def weight(self) -> Tensor:
        """The weight that the codes stand for, float32 [N, K]."""
        grouped = self.codes.view(*self.scales.shape, -1) * self.scales.unsqueeze(-1)
        if self.minimums is not None:
            grouped = grouped + self.minimums.unsqueeze(-1)
        return grouped.view(self.codes.shape)


def eight_bits(weight: Tensor) -> Codes:
    """The nearest codes of ``weight`` [N, K], the largest of each channel at 127."""
    codes, scales = quantize_rows(weight)
    return Codes(8, codes, scales)


def eight_bit_blocks(weight: Tensor) -> Codes:
    """The nearest codes of ``weight`` [N, K], the largest of each 32 at 127; scales are halves, as in Q8_0 blocks."""
    codes, scales = quantize_rows(weight.view(-1, GROUP))
    return Codes(8, codes.view(weight.shape), scales.half().float().view(weight.shape[0], -1))


def four_bit_blocks(weight: Tensor) -> Codes:
    """Codes between the smallest and the largest of each 32 weights [N, K], then the scale and minimum that fit best.

    A weight that was made of Q4_1 blocks gets the codes of its blocks again. Scales and minimums are halves, as there.
    """
    grouped = weight.double().view(weight.shape[0], -1, GROUP)
    least, largest = grouped.aminmax(dim=-1, keepdim=True)
    step = (largest - least) / 15
    codes = ((grouped - least) / step).nan_to_num(0.0).round()  # a group of equal weights has no step
    spread = codes - codes.mean(dim=-1, keepdim=True)
    scales = ((spread * grouped).sum(dim=-1) / spread.square().sum(dim=-1)).nan_to_num(0.0)
    minimums = grouped.mean(dim=-1) - scales * codes.mean(dim=-1)
    return Codes(4, codes.to(torch.int8).view(weight.shape), scales.half().float(), minimums.half().float())


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest codes int8 [..., K] and a scale for each row, float32 [..., 1]: rows are ``codes * scales``."""
    rows = rows.float()
    largest = rows.abs().amax(dim=-1, keepdim=True)
    # subtle: a number over a tensor would be the number times a reciprocal, rounded twice.
    codes = rows * torch.where(largest == 0, 0.0, torch.full_like(largest, _LARGEST) / largest)
    return codes.round().to(torch.int8), largest / _LARGEST


def linear(rows: Tensor, weight: Codes, bias: Tensor | None = None) -> Tensor:
    """The product of quantized ``rows`` [M, K] and a coded weight, as exactly as doubles are: float64 [M, N]."""
    size = GROUP if weight.grouped else rows.shape[-1]
    codes, scales = quantize_rows(rows.view(-1, size))
    seen = (codes.double() * scales.double()).view(rows.shape)
    product = seen @ weight.weight().double().t()
    return product if bias is None else product + bias.double()
