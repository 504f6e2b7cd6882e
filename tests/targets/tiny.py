"""Tiny random checkpoints in Hugging Face layout. Their weights are large, so that logits differ visibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

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


def save_tiny_deepseek(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a DeepSeek V4 of three layers into ``folder``, one of each kind, with windows that close early and often.

    The indexer has many heads, so that no two windows score the same zero: which of them it takes would depend on the
    shape. Hash routing sends tokens everywhere; transformers itself would initialise all of it to expert 0.
    """
    options = {
        "vocab_size": 323,
        "hidden_size": 32,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        "mlp_layer_types": ["hash_moe", "moe", "moe"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 20},
        "sliding_window": 12,
        "num_attention_heads": 4,
        "head_dim": 16,
        "partial_rotary_factor": 0.5,
        "q_lora_rank": 16,
        "o_groups": 2,
        "o_lora_rank": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "index_n_heads": 16,
        "index_head_dim": 8,
        "index_topk": 6,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = DeepseekV4ForCausalLM(DeepseekV4Config(**(options | changes)))
        experts = model.model.layers[0].mlp.gate.tid2eid
        experts.copy_(torch.rand(experts.shape[0], 4).argsort(-1)[:, : experts.shape[1]])
    model.save_pretrained(folder)
    return folder
