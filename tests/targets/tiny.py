"""Tiny random checkpoints in Hugging Face layout. Their weights are large, so that logits differ visibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

_CONFIGS: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
FAMILIES = tuple(_CONFIGS)


def save_tiny(folder: Path, family: str, *, seed: int = 0, **changes: Any) -> Path:
    """Write a two-layer model of ``family`` into ``folder``; ``changes`` are fields of its config."""
    options = {
        "vocab_size": 323,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "tie_word_embeddings": family == "llama",
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_CONFIGS[family](**(options | changes)))
    model.save_pretrained(folder)
    return folder
