"""Hidden states on their way through a transformers model, for those who read along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from heptagram_backend.errors import ReleaseError
from heptagram_backend.targets.base import Rows

HiddenSink = Callable[[Tensor, Sequence[Rows]], None]


class Taps(Protocol):
    def tell(self, spans: Sequence[Rows]) -> None:
        """A forward is over; ``spans`` says whose rows it computed, in their order."""


class NoTaps:
    """Nobody reads along."""

    def tell(self, spans: Sequence[Rows]) -> None:
        del spans


class HiddenTaps:
    """Keeps what ``layers`` of ``model`` put out, -1 being the embeddings, until ``sink`` is told.

    Raises:
        ReleaseError: there is no such layer.
    """

    def __init__(self, model: Any, layers: Sequence[int], sink: HiddenSink) -> None:
        if not layers or min(layers) < -1 or max(layers) >= len(model.layers):
            raise ReleaseError(
                f"drafter: it reads the layers {list(layers)} of its target, which has 0 to {len(model.layers) - 1}"
            )
        self._sink = sink
        self._read: list[Tensor] = [torch.empty(0)] * len(layers)
        for place, layer in enumerate(layers):
            module = model.embed_tokens if layer < 0 else model.layers[layer]
            module.register_forward_hook(self._keeper(place))

    def tell(self, spans: Sequence[Rows]) -> None:
        self._sink(torch.cat(self._read, dim=-1), spans)

    def _keeper(self, place: int) -> Callable[[Any, Any, Any], None]:
        def keep(module: Any, arguments: Any, output: Any) -> None:
            del module, arguments
            rows: Tensor = output[0] if isinstance(output, tuple) else output
            self._read[place] = rows[0]

        return keep
