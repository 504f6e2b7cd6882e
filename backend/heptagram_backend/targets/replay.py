"""A sequence on a model whose cache cannot be cut: snapshots at multiples of eight tokens, and replay from there.

Tokens run in blocks of eight that begin at multiples of eight, in prompts and in steps alike::

    snapshot      anchor p        block b              block b + 1
       |             |     [8b ............ 8b+7] [8b+8 ........... 8b+15]
       8b  replayed  p     replayed | p  drafts    drafts       | dead rows

So each position is always computed at the same place of the same shape, whatever was drafted and however the prompt
was cut, and its bits are always the same. A step takes at most two blocks; what stands behind the accepted prefix lives
in a fork of the snapshot, which is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heptagram_kernels.layout import ROWS

Run = Callable[[Any, list[int], int], Tensor]
"""Run eight tokens that begin at a position over a cache, which grows by them; gives hidden states [8, D]."""


def fork(cache: Any) -> Any:
    """A twin of a transformers cache that can grow without a trace in ``cache``.

    References suffice: the layers of ``deepseek_v4`` never write into a tensor, they put another one in its place.
    """
    twin = copy(cache)
    twin.layers = [_fork_layer(layer) for layer in cache.layers]
    return twin


def _fork_layer(layer: Any) -> Any:
    twin = copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):  # the compressors' states, by the name of the compressor
            setattr(twin, name, dict(value))
    return twin


@dataclass(frozen=True, slots=True)
class _Block:
    """What came of the block behind the snapshot the last time: the cache behind it belongs to these tokens only."""

    tokens: list[int]
    cache: Any


class ReplayedSequence:
    """The tokens of one slot, the snapshot, and the block behind it.

    Args:
        run: runs a block; also pure but for the cache that it is given.
        fresh: an empty cache.
    """

    def __init__(self, run: Run, fresh: Callable[[], Any]) -> None:
        self._run = run
        self._fresh = fresh
        self._tokens: list[int] = []
        self._snapshot = fresh()
        self._position = 0
        self._ahead: _Block | None = None

    def write(self, position: int, tokens: Sequence[int]) -> None:
        """Tokens at ``position`` and behind, in place of all that stood there.

        Raises:
            ValueError: nobody wrote what is before them.
        """
        if position > len(self._tokens):
            raise ValueError(f"position {position}: only {len(self._tokens)} tokens were written before it")
        self._tokens[position:] = tokens
        if position < self._position:
            self._snapshot, self._position, self._ahead = self._fresh(), 0, None

    def settle(self, position: int) -> None:
        """Move the snapshot to the block of ``position``, before which all tokens are there to stay."""
        while self._position + ROWS <= position:
            self._snapshot = self._behind(self._block(self._position))
            self._position += ROWS
            self._ahead = None

    def step(self, position: int, tokens: Sequence[int]) -> Tensor:
        """Write eight tokens and compute them: hidden states [8, D]."""
        self.write(position, tokens)
        self.settle(position)
        cache, first = fork(self._snapshot), self._block(self._position)
        hidden = self._run(cache, first, self._position)
        self._ahead = _Block(first, cache)
        if (offset := position - self._position) == 0:
            return hidden
        second = self._run(fork(cache), self._block(self._position + ROWS), self._position + ROWS)
        return torch.cat((hidden[offset:], second[:offset]))

    def _behind(self, tokens: list[int]) -> Any:
        """The cache behind the snapshot and its block, which was mostly computed by the last step."""
        if self._ahead is not None and self._ahead.tokens == tokens:
            return self._ahead.cache
        cache = fork(self._snapshot)
        self._run(cache, tokens, self._position)
        return cache

    def _block(self, start: int) -> list[int]:
        tokens = self._tokens[start : start + ROWS]
        return tokens + [0] * (ROWS - len(tokens))
