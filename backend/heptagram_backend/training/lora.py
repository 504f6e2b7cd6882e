"""Low-rank adapters (Hu et al. 2021) in the linear layers of a transformers model, and rows of its embedding.

Written out here for it is a page, while ``peft`` brings dozens of methods and a file format for all of them: what is
merged at conversion (``heptagram_backend.merge``) is two matrices a layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heptagram_backend.adapter import DOWN, ROWS, UP


class LoraLinear(nn.Module):
    """``base(x) + scale * up(down(x))``; ``up`` begins as zeros, so a new adapter changes nothing."""

    def __init__(self, base: nn.Linear, *, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        self.base = base
        self.scale = scale
        self.active = True
        bound = 1 / math.sqrt(base.in_features)
        drawn = torch.empty(rank, base.in_features).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(drawn)  # float32 [rank, in]
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))  # float32 [out, rank]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        low = functional.linear(x, self.down.to(x.dtype))
        return y + functional.linear(low, (self.up * self.scale).to(x.dtype))


class Adapted:
    """A model with adapters in every linear layer of its blocks; only they, and ``rows`` of the embedding, are trained.

    Args:
        model: a causal language model whose input and output embeddings are tied.
        rows: ids of the tokens that get a new meaning.
    """

    def __init__(self, model: Any, *, rank: int, scale: float, rows: Sequence[int], seed: int) -> None:
        self.model = model.requires_grad_(False).eval()
        self.rows = torch.tensor(rows, dtype=torch.int64)
        generator = torch.Generator().manual_seed(seed)
        self.layers = dict(_replace_linears(model.model.layers, "model.layers", rank, scale, generator))
        self.embedding: Tensor = model.get_input_embeddings().weight
        self.embedded = nn.Parameter(self.embedding[self.rows].float().clone())  # float32 [rows, hidden]

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """What is trained, by the names of the adapter's file."""
        found = {ROWS: self.embedded} if len(self.rows) else {}
        for name, layer in self.layers.items():
            found |= {f"{name}.{DOWN}": layer.down, f"{name}.{UP}": layer.up}
        return found

    def hidden(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Final hidden states [T, hidden] of one sequence: ``ids`` and ``positions`` [T], ``mask`` bool [T, T]."""
        embedded = functional.embedding(ids, self.embedding)
        for place, row in enumerate(self.rows):
            new = self.embedded[place].to(embedded.dtype)
            embedded = torch.where((ids == row)[:, None], new, embedded)
        found = self.model.model(
            inputs_embeds=embedded[None], attention_mask=mask[None, None], position_ids=positions[None], use_cache=False
        )
        states: Tensor = found.last_hidden_state[0]
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [N, vocabulary] of hidden states [N, hidden]."""
        logits = functional.linear(hidden, self.embedding).float()
        if not len(self.rows):
            return logits
        new = functional.linear(hidden, self.embedded.to(hidden.dtype)).float()
        return logits.index_copy(1, self.rows, new)

    @contextmanager
    def base(self) -> Iterator[None]:
        """Inside, the layers are those of the base model."""
        for layer in self.layers.values():
            layer.active = False
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.active = True


def _replace_linears(
    module: nn.Module, path: str, rank: int, scale: float, generator: torch.Generator
) -> Iterator[tuple[str, LoraLinear]]:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            layer = LoraLinear(child, rank=rank, scale=scale, generator=generator)
            setattr(module, name, layer)
            yield f"{path}.{name}", layer
        else:
            yield from _replace_linears(child, f"{path}.{name}", rank, scale, generator)
