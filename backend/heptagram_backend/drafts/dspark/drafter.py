"""DSpark in the engine: one model for all sequences, fed from the target's hidden states, and a drafter for each.

Context keys and values lie beside the target's cache, row by row under the same blocks: whatever the target computes
is written here as well. So a shared prefix brings them along, a preempted sequence gets them back when its rows are
written again, and to cut them is to read fewer: a block attends to the positions before its anchor, and rows of
rejected drafts are rewritten before anything reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_backend.drafts.base import NOTHING, Proposal, permits
from heptagram_backend.drafts.dspark.loading import load_network
from heptagram_backend.drafts.dspark.network import DraftNetwork, KeysValues, OwnContexts
from heptagram_backend.drafts.dspark.walk import Walk, walk
from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.base import HiddenSource, Rows, Target
from heptagram_backend.targets.loading import DTYPES
from heptagram_kernels.workspace import Declaration, Workspace


@dataclass(frozen=True, slots=True)
class Block:
    """What the network made of one anchor: ``hidden`` [1, block, D], ``base`` logits [1, block, draft vocabulary], and
    the likeliest ``tokens`` with the head's confidence in each, if it has one."""

    anchor: Tensor
    hidden: Tensor
    base: Tensor
    tokens: list[int]
    chances: list[float]


class DSparkModel:
    """The shared part. ``source`` is the target whose hidden states it reads."""

    def __init__(self, network: DraftNetwork, source: HiddenSource) -> None:
        self._network = network
        self._source = source
        config = network.config
        self.workspace = Workspace("drafter")
        shape = (source.cache_rows, config.kv_heads, config.head_dim)
        names = [(f"drafter.keys.{layer}", f"drafter.values.{layer}") for layer in range(config.layers)]
        dtype = network.fc.weight.dtype
        self.workspace.reserve(Declaration(name, dtype, shape) for pair in names for name in pair)
        self._layers = [(self.workspace.take(keys), self.workspace.take(values)) for keys, values in names]
        self.workspace.seal()
        self._seats: dict[int, DSparkDrafter] = {}
        source.tap(config.target_layer_ids, self._write)

    @property
    def block_size(self) -> int:
        return self._network.config.block_size

    def make(self) -> DSparkDrafter:
        """A drafter for one sequence."""
        return DSparkDrafter(self)

    def seat(self, slot: int, drafter: DSparkDrafter) -> None:
        """``drafter`` may ask for a block before the next forward; all who may get theirs together."""
        self._seats[slot] = drafter

    @torch.inference_mode()
    def draft(self) -> None:
        """Make the blocks of all who are seated."""
        seats = {
            slot: drafter
            for slot, drafter in self._seats.items()
            # What a failed step left behind may have lost its rows.
            if drafter.position <= self._source.rows_held(slot)
        }
        self._seats = {}
        drafters = list(seats.values())
        anchors = torch.tensor([drafter.anchor for drafter in drafters])
        positions = torch.tensor([drafter.position for drafter in drafters])
        rows = [self._source.rows(slot, 0, drafter.position) for slot, drafter in seats.items()]
        contexts = [OwnContexts([_read(layer, index) for index in rows]) for layer in self._layers]
        hidden = self._network(anchors, positions, contexts)
        base = self._network.logits(hidden)
        chosen = walk(self._network, hidden, anchors, base=base)
        tokens = chosen.tokens.tolist()
        for place, drafter in enumerate(drafters):
            one = slice(place, place + 1)
            drafter.take(Block(anchors[one], hidden[one], base[one], tokens[place], _chances(chosen, place)))

    @torch.inference_mode()
    def redraft(self, block: Block, ahead: Sequence[int], allowed: NDArray[np.int32] | None) -> Block:
        """``block`` as it goes on when ``ahead`` stands already; the first token behind it must be ``allowed``."""
        given = torch.tensor([list(ahead)], dtype=torch.int64)
        mask = None if allowed is None else _unpack(allowed, self._network.config.vocab_size)
        chosen = walk(self._network, block.hidden, block.anchor, base=block.base, given=given, allowed=mask)
        return replace(block, tokens=chosen.tokens[0].tolist(), chances=_chances(chosen, 0))

    def _write(self, hidden: Tensor, spans: Iterable[Rows]) -> None:
        """The target computed ``hidden`` [T, taps * D] for the rows of ``spans``, one after the other."""
        self._seats = {}
        spans = list(spans)
        positions = torch.cat([torch.arange(start, start + count) for _, start, count in spans])
        index = torch.cat([self._source.rows(*span) for span in spans])
        for (keys, values), (key, value) in zip(self._layers, self._network.context(hidden, positions), strict=True):
            keys.index_copy_(0, index, key)
            values.index_copy_(0, index, value)


class DSparkDrafter:
    """The drafter of one sequence. Implements :class:`drafts.base.Drafter`."""

    def __init__(self, model: DSparkModel) -> None:
        self._model = model
        self._block: Block | None = None
        self.anchor = 0
        self.position = -1

    def extend(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.anchor = tokens[-1]
            self.position += len(tokens)
            self._block = None

    def seat(self, slot: int) -> None:
        self._block = None
        self._model.seat(slot, self)

    def take(self, block: Block) -> None:
        """The block that :meth:`DSparkModel.draft` made."""
        self._block = block

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        place = len(ahead)
        if place >= self._model.block_size:
            return NOTHING
        if self._block is None:
            self._model.draft()
        block = self._block
        assert block is not None, "propose() without seat()"
        stands, legal = block.tokens[:place] == list(ahead), permits(allowed, block.tokens[place])
        if not stands or not legal:
            self._block = block = self._model.redraft(block, ahead, allowed)
        end = place + limit
        return Proposal(block.tokens[place:end], "dspark", block.chances[place:end], replaces=stands and not legal)


def load(options: EngineOptions, checkpoint: Path, target: Target) -> DSparkModel | None:
    """The drafter that a release names, for its loaded target; None if it names none.

    Raises:
        ReleaseError: it cannot be loaded, or the target shows nobody its hidden states.
    """
    if options.drafter is None:
        return None
    if not isinstance(target, HiddenSource):
        raise ReleaseError(
            f"engine.drafter: the target of {checkpoint} shows no hidden states; leave engine.drafter out"
        )
    # A path that is not absolute is one inside the checkpoint.
    folder = checkpoint / Path(options.drafter).expanduser()
    network = load_network(folder, target=checkpoint, max_position=target.max_model_len, dtype=DTYPES[options.dtype])
    return DSparkModel(network, target)


def _read(layer: tuple[Tensor, Tensor], index: Tensor) -> KeysValues:
    keys, values = layer
    return keys.index_select(0, index), values.index_select(0, index)


def _chances(walked: Walk, place: int) -> list[float]:
    if walked.confidence is None:
        return []
    chances: list[float] = walked.confidence[place].tolist()
    return chances


def _unpack(row: NDArray[np.int32], width: int) -> Tensor:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")[:width]
    return torch.from_numpy(bits.astype(np.bool_)).unsqueeze(0)
