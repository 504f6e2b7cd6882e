"""Random DSpark drafters in DeepSpec's layout, for any target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.network import DraftNetwork

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "block_size": 7,
    "mask_token_id": 287,
    "target_layer_ids": [-1, 0],
    "num_target_layers": 2,
    "num_anchors": 8,
    "markov_rank": 8,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "tie_word_embeddings": False,
}
GEMMA4 = QWEN3 | {
    "architectures": ["Gemma4DSparkModel"],
    "model_type": "gemma4_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "layer_types": ["full_attention", "full_attention"],
    "final_logit_softcapping": 30.0,
    "vocab_size_per_layer_input": 288,
}


def random_weights(raw: dict[str, Any], *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights of every name that a drafter of this config has, large enough that blocks differ."""
    network = DraftNetwork(DSparkConfig.parse(raw), max_position=8)
    generator = torch.Generator().manual_seed(seed)
    weights = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in network.state_dict().items()}
    weights = {name: tensor * 0.3 for name, tensor in weights.items()}
    if "d2t" in weights:
        proposed = torch.randperm(raw["vocab_size"], generator=generator)[: raw["draft_vocab_size"]].sort().values
        weights["d2t"] = proposed - torch.arange(len(proposed))
    return weights


def save_drafter(
    folder: Path, weights: dict[str, torch.Tensor] | None = None, *, without_ends: bool = False, **changes: Any
) -> Path:
    """Write a drafter into ``folder``; ``changes`` are fields of its config. Without ends it has its target's."""
    raw = QWEN3 | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    weights = random_weights(raw) if weights is None else weights
    ends = ("embed_tokens.weight", "lm_head.weight") if without_ends else ()
    save_file({name: one for name, one in weights.items() if name not in ends}, folder / "model.safetensors")
    return folder
