"""``config.json`` of a checkpoint that our decoder runs, parsed and checked once.

Read without transformers, whose configuration classes take a second to import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heptagram_backend.errors import ReleaseError

MODEL_TYPES: Final = ("llama", "qwen2", "qwen3")
# Others (dynamic, longrope) change with the longest position in the batch, so company would change an answer.
ROPE_TYPES: Final = ("default", "linear", "yarn", "llama3")
_ONLY: Final[Mapping[str, Any]] = {"hidden_act": "silu", "quantization_config": None, "partial_rotary_factor": 1.0}


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions turn queries and keys: the base of the frequencies, and a name from :data:`ROPE_TYPES`."""

    kind: str
    theta: float


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """``heads`` query heads share ``kv_heads`` key and value heads of ``head_dim`` each."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int
    epsilon: float
    tied: bool
    rope: Rope

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @classmethod
    def read(cls, checkpoint: Path) -> DecoderConfig:
        """The configuration of a checkpoint folder.

        Raises:
            ReleaseError: it cannot be read, or asks for what this decoder does not compute; the message names it.
        """
        try:
            data = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
            return cls._parse(data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReleaseError(f"checkpoint: {checkpoint}: its config.json cannot be read ({error!r})") from error

    @classmethod
    def _parse(cls, data: Mapping[str, Any]) -> DecoderConfig:
        _check(data)
        heads = data["num_attention_heads"]
        return cls(
            hidden=data["hidden_size"],
            inner=data["intermediate_size"],
            layers=data["num_hidden_layers"],
            heads=heads,
            kv_heads=data.get("num_key_value_heads") or heads,
            head_dim=data.get("head_dim") or data["hidden_size"] // heads,
            vocab=data["vocab_size"],
            positions=data["max_position_embeddings"],
            epsilon=data["rms_norm_eps"],
            tied=data.get("tie_word_embeddings", False),
            rope=_rope(data),
        )


def _check(data: Mapping[str, Any]) -> None:
    kind = data["model_type"]
    if kind not in MODEL_TYPES:
        raise ReleaseError(f"checkpoint: model type {kind!r}; this runner takes {', '.join(MODEL_TYPES)}")
    for name, only in _ONLY.items():
        if (found := data.get(name, only)) != only:
            raise ReleaseError(f"checkpoint: {name} is {found!r}; this runner takes {only} only")
    layers = data.get("layer_types")
    if set(layers) > {"full_attention"} if layers else data.get("use_sliding_window", False):
        raise ReleaseError("checkpoint: has sliding-window layers; set use_sliding_window to false in its config.json")


def _rope(data: Mapping[str, Any]) -> Rope:
    """``rope_parameters`` as transformers 5 writes them, or ``rope_theta`` and ``rope_scaling`` of older ones."""
    written = data.get("rope_parameters") or data.get("rope_scaling") or {}
    kind = written.get("rope_type") or written.get("type") or "default"
    if kind not in ROPE_TYPES or written.get("partial_rotary_factor", 1.0) != 1.0:
        raise ReleaseError(f"checkpoint: rope type {kind!r} is not run here; choose one of {', '.join(ROPE_TYPES)}")
    return Rope(kind, float(written.get("rope_theta") or data.get("rope_theta") or 10_000.0))
