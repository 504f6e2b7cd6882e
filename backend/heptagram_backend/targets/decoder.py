"""Our own forward of Llama, Qwen2 and Qwen3: the same mathematics as transformers' model code in a third of the calls.

Query, key and value are one product; an activation, a gate or a residual is part of the product before it; queries and
keys turn together. One flat row [T] holds the rows of all sequences, so linear layers see them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from heptagram_backend.targets.attention import Spans, attend
from heptagram_backend.targets.decoder_config import DecoderConfig
from heptagram_backend.targets.packed_linear import Linear, linear_for
from heptagram_backend.targets.rotary import Rotary, RotaryTable
from heptagram_backend.targets.weights import Weights


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor  # [hidden]
    qkv: Linear
    head_norm: Tensor | None  # [heads + kv_heads, head_dim]: Qwen3 normalizes each head of queries and keys
    output: Linear
    mlp_norm: Tensor  # [hidden]
    gate: Linear
    up: Linear
    down: Linear


class Decoder:
    """Weights and forward; the cache comes with each call. Ordinary causal attention, SiLU, RMSNorm."""

    def __init__(self, config: DecoderConfig, checkpoint: Path, dtype: torch.dtype) -> None:
        self.config = config
        self.dtype = dtype
        with Weights(checkpoint, dtype) as weights:
            self._load(weights)
        scales = torch.ones((config.heads + config.kv_heads, 1))
        scales[: config.heads] = config.head_dim**-0.5  # the softmax's scale goes onto the queries
        self._rotary = Rotary(config, checkpoint, scales=scales)

    def _load(self, weights: Weights) -> None:
        config, dtype = self.config, self.dtype
        self.embedding = weights.take("model.embed_tokens.weight", config.vocab, config.hidden)
        self._layers = tuple(_layer(weights, config, number, dtype) for number in range(config.layers))
        self._norm = weights.take("model.norm.weight", config.hidden)
        head = self.embedding if config.tied else weights.take("lm_head.weight", *self.embedding.shape)
        self._head: Linear = linear_for(dtype)(head)

    def hidden(self, token_ids: Tensor, positions: Tensor, spans: Spans) -> Tensor:
        """Final hidden states [T, hidden] of ``token_ids`` [T] at ``positions`` [T]; writes the cache of ``spans``."""
        rotate = self._rotary.table(positions, self.dtype)
        rows = functional.embedding(token_ids, self.embedding)
        for number, layer in enumerate(self._layers):
            mixed = attend(spans, number, *self._heads(layer, self._normed(rows, layer.attention_norm), rotate))
            rows = layer.output.plus(mixed, rows)
            normed = self._normed(rows, layer.mlp_norm)
            rows = layer.down.plus(layer.up.times(normed, layer.gate.silu(normed)), rows)
        return self._normed(rows, self._norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, V] of hidden states [T, hidden]."""
        return self._head(hidden)

    def _heads(self, layer: _Layer, rows: Tensor, rotate: RotaryTable) -> tuple[Tensor, Tensor, Tensor]:
        """Query [T, H, D], key and value [T, KVH, D]; the first two rotated."""
        config = self.config
        turning = config.heads + config.kv_heads
        heads = layer.qkv(rows).view(rows.shape[0], -1, config.head_dim)
        turned = heads[:, :turning]
        if layer.head_norm is not None:
            turned = functional.rms_norm(turned, (config.head_dim,), eps=config.epsilon) * layer.head_norm
        turned = rotate(turned)
        return turned[:, : config.heads], turned[:, config.heads :], heads[:, turning:]

    def _normed(self, rows: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(rows, (self.config.hidden,), weight, self.config.epsilon)


def _layer(weights: Weights, config: DecoderConfig, number: int, dtype: torch.dtype) -> _Layer:
    place = f"model.layers.{number}"
    make = linear_for(dtype)
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def linear(name: str, width: int, depth: int) -> Linear:
        return make(weights.take(f"{place}.{name}.weight", width, depth), weights.find(f"{place}.{name}.bias", width))

    return _Layer(
        attention_norm=weights.take(f"{place}.input_layernorm.weight", config.hidden),
        qkv=make(*_joined(weights, f"{place}.self_attn", config.hidden, q=queries, k=keys, v=keys)),
        head_norm=_head_norm(weights, f"{place}.self_attn", config),
        output=linear("self_attn.o_proj", config.hidden, queries),
        mlp_norm=weights.take(f"{place}.post_attention_layernorm.weight", config.hidden),
        gate=linear("mlp.gate_proj", config.inner, config.hidden),
        up=linear("mlp.up_proj", config.inner, config.hidden),
        down=linear("mlp.down_proj", config.hidden, config.inner),
    )


def _joined(weights: Weights, place: str, depth: int, **widths: int) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the projections ``widths`` below each other."""
    joined = torch.cat([weights.take(f"{place}.{name}_proj.weight", width, depth) for name, width in widths.items()])
    biases = [weights.find(f"{place}.{name}_proj.bias", width) for name, width in widths.items()]
    present = [bias for bias in biases if bias is not None]
    return joined, torch.cat(present) if len(present) == len(biases) else None


def _head_norm(weights: Weights, place: str, config: DecoderConfig) -> Tensor | None:
    query = weights.find(f"{place}.q_norm.weight", config.head_dim)
    if query is None:
        return None
    key = weights.take(f"{place}.k_norm.weight", config.head_dim)
    return torch.cat((query.expand(config.heads, -1), key.expand(config.kv_heads, -1)))
