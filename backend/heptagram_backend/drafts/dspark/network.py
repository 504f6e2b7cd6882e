"""The draft network in plain torch. Modules bear the names of DeepSpec's checkpoints, so weights load by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.heads import MARKOV_HEADS, ConfidenceHead


@dataclass(frozen=True, slots=True)
class Rotary:
    """``cos`` and ``sin`` [..., head_dim] of some positions."""

    cos: Tensor
    sin: Tensor

    def to(self, device: torch.device) -> Rotary:
        return Rotary(self.cos.to(device), self.sin.to(device))

    def __getitem__(self, positions: Any) -> Rotary:
        return Rotary(self.cos[positions], self.sin[positions])

    def turn(self, rows: Tensor) -> Tensor:
        """Rotate ``rows`` [..., heads, head_dim]."""
        first, second = rows.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return rows * self.cos.unsqueeze(-2) + turned * self.sin.unsqueeze(-2)


def rotary(config: DSparkConfig, positions: int, dtype: torch.dtype) -> Rotary:
    """The rotary embedding of the positions ``0 .. positions - 1``, by transformers' own rules for the family."""
    rows, places = torch.zeros(1, dtype=dtype), torch.arange(positions).unsqueeze(0)
    if config.family == "gemma4":
        cos, sin = Gemma4TextRotaryEmbedding(Gemma4TextConfig(**config.raw))(rows, places, "full_attention")
    else:
        cos, sin = Qwen3RotaryEmbedding(Qwen3Config(**config.raw))(rows, places)
    return Rotary(cos[0], sin[0])


class RMSNorm(nn.Module):
    """``weight * x / rms(x)``; ``scaled`` false: no weight."""

    def __init__(self, size: int, epsilon: float, *, scaled: bool = True) -> None:
        super().__init__()
        self._shape, self._epsilon = (size,), epsilon
        self.weight = nn.Parameter(torch.ones(size)) if scaled else None

    def forward(self, rows: Tensor) -> Tensor:
        weight = None if self.weight is None else self.weight.to(rows.dtype)  # training computes in another one
        return functional.rms_norm(rows, self._shape, weight, self._epsilon)


KeysValues = tuple[Tensor, Tensor]
"""Keys and values, each [rows, kv_heads, head_dim]."""


class Context(Protocol):
    """What the blocks of one layer attend to, beside themselves."""

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float) -> Tensor:
        """[B, block, heads * head_dim] for ``queries`` [B, block, heads, head_dim] and the blocks' own ``keys`` and
        ``values`` [B, block, kv_heads, head_dim]; the heads of a group share their keys."""


class OwnContexts:
    """Each block has keys and values of its own, of any length."""

    def __init__(self, contexts: Sequence[KeysValues]) -> None:
        self._contexts = contexts

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float) -> Tensor:
        """See :meth:`Context.attend`."""
        return torch.stack(
            [
                _attend(queries[place], torch.cat([known, keys[place]]), torch.cat([read, values[place]]), scale)
                for place, (known, read) in enumerate(self._contexts)
            ]
        )


def _attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """[block, heads * head_dim] of one sequence."""
    block, _, head_dim = queries.shape
    grouped = queries.transpose(0, 1).reshape(keys.shape[1], -1, head_dim)
    weights = torch.softmax(scale * (grouped @ keys.permute(1, 2, 0)), dim=-1)
    mixed = weights @ values.transpose(0, 1)
    return mixed.view(-1, block, head_dim).transpose(0, 1).reshape(block, -1)


class Attention(nn.Module):
    """The block attends to its context and, in both directions, to itself. Context gets keys and values only."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        gemma = config.family == "gemma4"
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self._kv_heads, self._head_dim = config.kv_heads, config.head_dim
        self._scale = 1.0 if gemma else config.head_dim**-0.5
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=config.bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=config.bias)
        self.v_proj = None if config.shared_values else nn.Linear(config.hidden_size, keys, bias=config.bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=config.bias)
        self.q_norm = RMSNorm(config.head_dim, config.epsilon)
        self.k_norm = RMSNorm(config.head_dim, config.epsilon)
        self.v_norm = RMSNorm(config.head_dim, config.epsilon, scaled=False) if gemma else nn.Identity()

    def keys_values(self, rows: Tensor, places: Rotary) -> KeysValues:
        """Of ``rows`` [..., D]: context features as they are, or a block behind its layer's norm."""
        keys = self.k_proj(rows)
        values = keys if self.v_proj is None else self.v_proj(rows)
        keys = self.k_norm(keys.unflatten(-1, (self._kv_heads, self._head_dim)))
        return places.turn(keys), self.v_norm(values.unflatten(-1, (self._kv_heads, self._head_dim)))

    def forward(self, rows: Tensor, places: Rotary, context: Context) -> Tensor:
        """[B, block, D] for ``rows`` [B, block, D]."""
        queries = places.turn(self.q_norm(self.q_proj(rows).unflatten(-1, (-1, self._head_dim))))
        output: Tensor = self.o_proj(context.attend(queries, *self.keys_values(rows, places), scale=self._scale))
        return output


class MLP(nn.Module):
    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self._activation = ACT2FN[config.activation]

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self._activation(self.gate_proj(rows)) * self.up_proj(rows))
        return output


class Qwen3Layer(nn.Module):
    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.epsilon)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.epsilon)

    def forward(self, rows: Tensor, places: Rotary, context: Context) -> Tensor:
        rows = rows + self.self_attn(self.input_layernorm(rows), places, context)
        output: Tensor = rows + self.mlp(self.post_attention_layernorm(rows))
        return output


class Gemma4Layer(nn.Module):
    """A norm behind each part as well, and a scale for all."""

    input_layernorm: RMSNorm
    post_attention_layernorm: RMSNorm
    pre_feedforward_layernorm: RMSNorm
    post_feedforward_layernorm: RMSNorm
    layer_scalar: Tensor

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            setattr(self, f"{name}_layernorm", RMSNorm(config.hidden_size, config.epsilon))
        self.register_buffer("layer_scalar", torch.ones(1))

    def forward(self, rows: Tensor, places: Rotary, context: Context) -> Tensor:
        attended = self.self_attn(self.input_layernorm(rows), places, context)
        rows = rows + self.post_attention_layernorm(attended)
        rows = rows + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(rows)))
        return rows * self.layer_scalar


class DraftNetwork(nn.Module):
    """A DSpark drafter. ``max_position`` bounds the positions that it can stand at.

    A reduced draft vocabulary is stored as EAGLE-3's is: draft token ``i`` is the target's token ``i + d2t[i]``.
    """

    def __init__(self, config: DSparkConfig, *, max_position: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        width, layer = config.hidden_size, Gemma4Layer if config.family == "gemma4" else Qwen3Layer
        self._embedding_scale = math.sqrt(width) if config.family == "gemma4" else 1.0
        self.places = rotary(config, max_position + config.block_size, dtype)
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.fc = nn.Linear(len(config.target_layer_ids) * width, width, bias=False)
        self.hidden_norm = RMSNorm(width, config.epsilon)
        self.layers = nn.ModuleList(layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(width, config.epsilon)
        self.lm_head = nn.Linear(width, config.draft_vocab_size, bias=False)
        self.d2t: Tensor | None
        self.register_buffer(
            "d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64) if config.is_reduced else None
        )
        self.markov_head = MARKOV_HEADS[config.markov](config) if config.markov else None
        self.confidence_head = ConfidenceHead(config) if config.confidence else None

    def context(self, hidden: Tensor, positions: Tensor) -> list[KeysValues]:
        """Keys and values of every layer for rows of the target.

        Args:
            hidden: [rows, taps * D], outputs of the target's layers side by side.
            positions: int64 [rows].
        """
        features, places = self.hidden_norm(self.fc(hidden)), self.places[positions]
        attentions = (cast(Attention, layer.self_attn) for layer in self.layers)
        return [attention.keys_values(features, places) for attention in attentions]

    def forward(self, anchors: Tensor, positions: Tensor, contexts: Sequence[Context]) -> Tensor:
        """Hidden states [B, block, D]; row ``k`` predicts the ``k + 1``-th token behind the anchor.

        Args:
            anchors, positions: int64 [B], the last token of each sequence and where it stands.
            contexts: by layer, keys and values of the positions before each anchor.
        """
        size, device = self.config.block_size, anchors.device
        block = torch.full((len(anchors), size), self.config.mask_token_id, device=device)
        block[:, 0] = anchors
        places = self.places[positions.unsqueeze(1) + torch.arange(size, device=device)]
        rows = self.embed_tokens(block)
        rows = rows * torch.tensor(self._embedding_scale, dtype=rows.dtype)
        for layer, context in zip(self.layers, contexts, strict=True):
            rows = layer(rows, places, context)
        hidden: Tensor = self.norm(rows)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Base logits [..., draft vocabulary], without the Markov head's bias."""
        logits: Tensor = self.lm_head(hidden)
        if self.config.softcap is not None:
            logits = torch.tanh(logits / self.config.softcap) * self.config.softcap
        return logits

    @cached_property
    def vocabulary(self) -> Tensor:
        """int64 [draft vocabulary], the target's token of each."""
        places = torch.arange(self.config.draft_vocab_size, device=self.fc.weight.device)
        return places if self.d2t is None else places + self.d2t

    @cached_property
    def draft_ids(self) -> Tensor:
        """int64 [V], the place of each token in the draft vocabulary, whose size stands for those outside of it."""
        size, device = self.config.draft_vocab_size, self.vocabulary.device
        places = torch.full((self.config.vocab_size,), size, device=device)
        return places.index_copy_(0, self.vocabulary, torch.arange(size, device=device))
