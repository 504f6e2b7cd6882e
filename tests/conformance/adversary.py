"""A model that knows nothing and still ends its calls: random weights, seeded noise, a pull towards closing tokens.

Its tokens are as hostile as a vocabulary allows: anything that the grammar lets through may come next. Without the
pull nearly every string would run into ``max_tokens``, and finished calls are what is to be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from heptagram_backend.targets.base import Target
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_backend.targets.wrapped import WrappedTarget
from heptagram_kernels.layout import ROWS

# The model's logits and the noise have a standard deviation of about 1 each. Inside a string the best of some 40,000
# tokens stands near 6, so a quote needs a strong pull; a bracket or the end stands against a few others only. An
# opening bracket stands against several tokens that close at once; without its pull every array would be empty.
QUOTE_PULL: Final = 1.8
OPEN_PULL: Final = 2.0
END_PULL: Final = 1.0
CORNER_PULL: Final = 1.5
_NOISE_ROWS: Final = 127
_CLOSERS: Final = frozenset(b'"}]')
_OPENERS: Final = frozenset(b"{[")
_STRUCTURE: Final = frozenset(b'"{}[], \n')
_CORNERS: Final = frozenset(b"\\</>:")


class Adversary(WrappedTarget):
    """``inner`` with ``pull`` [V] and one of 127 rows of noise added to its logits. Implements ``Target``.

    Position and token choose the noise, so the same request still gets the same tokens in any company.
    """

    def __init__(self, inner: Target, pull: Tensor, *, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        super().__init__(inner)
        self._shift = torch.randn((_NOISE_ROWS, inner.vocab_size), generator=generator) + pull

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        places = ((positions.unsqueeze(1) + torch.arange(ROWS)) * 37 + token_ids * 5) % _NOISE_ROWS
        return self._inner.forward(token_ids, positions, slots) + self._shift[places]


def pull_of(token_bytes: Sequence[bytes | None], stop_ids: frozenset[int]) -> Tensor:
    """The bias of each token, float32 [V]: brackets, quotes and stop tokens, and a weaker one for ugly corners.

    Corners are escapes, markup characters, colons (a URI needs one), and pieces that are no whole UTF-8 text.
    """
    pulls = [END_PULL if token in stop_ids else _pull(piece or b"") for token, piece in enumerate(token_bytes)]
    return torch.tensor(pulls)


def _pull(piece: bytes) -> float:
    characters = frozenset(piece)
    if characters <= _STRUCTURE:
        if characters & _OPENERS:
            return OPEN_PULL
        if characters & _CLOSERS:
            return QUOTE_PULL if b'"' in piece else END_PULL
    return CORNER_PULL if characters & _CORNERS or not _is_text(piece) else 0.0


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def random_target(folder: Path, *, vocab_size: int, num_slots: int, max_model_len: int, seed: int = 0) -> Target:
    """A random Llama of two layers whose logits have a standard deviation near 1; ``folder`` gets its weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_model_len,
        initializer_range=0.125,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return TransformersTarget(folder, dtype="float32", num_slots=num_slots, max_model_len=max_model_len)
