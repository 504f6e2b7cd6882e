"""Rotary position embedding (Su et al., "RoFormer", 2021) as one table row a position."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from heptagram_backend.targets.decoder_config import DecoderConfig


class Rotary:
    """Rotates the heads of queries and keys together. ``scales`` [heads, 1] is put on each head on the way."""

    def __init__(self, config: DecoderConfig, checkpoint: Path, *, scales: Tensor) -> None:
        self._frequencies, attention_factor = _frequencies(config, checkpoint)
        self._scales = scales * attention_factor

    def table(self, positions: Tensor, dtype: torch.dtype) -> RotaryTable:
        """The rotations of ``positions`` [T]."""
        angles = positions.float().unsqueeze(1) * self._frequencies  # [T, D / 2]
        cos, sin = angles.cos(), angles.sin()
        return RotaryTable(
            cos=(torch.cat((cos, cos), dim=1).unsqueeze(1) * self._scales).to(dtype),
            sin=(torch.cat((-sin, sin), dim=1).unsqueeze(1) * self._scales).to(dtype),
        )


class RotaryTable:
    """``cos`` and signed ``sin``, [T, heads, D]."""

    __slots__ = ("_cos", "_half", "_sin")

    def __init__(self, *, cos: Tensor, sin: Tensor) -> None:
        self._cos, self._sin = cos, sin
        self._half = cos.shape[2] // 2

    def __call__(self, heads: Tensor) -> Tensor:
        """Rotate ``heads`` [T, heads, D]: element ``i`` turns with ``i + D / 2``."""
        return torch.addcmul(heads * self._cos, heads.roll(self._half, 2), self._sin)


def _frequencies(config: DecoderConfig, checkpoint: Path) -> tuple[Tensor, float]:
    """Angle of each pair of elements per position, float32 [D / 2], and the factor on every rotation."""
    if config.rope.kind == "default":
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        return 1.0 / config.rope.theta**exponents, 1.0
    # Two seconds of imports that only such checkpoints pay.
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    theirs = AutoConfig.from_pretrained(checkpoint, local_files_only=True)
    frequencies, factor = ROPE_INIT_FUNCTIONS[config.rope.kind](theirs, torch.device("cpu"))
    return frequencies, float(factor)
