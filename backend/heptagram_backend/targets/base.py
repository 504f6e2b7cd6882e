"""What the K7 step needs of a target model. A runner owns the weights and the key/value cache, not the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from heptagram_kernels.workspace import Workspace


class Target(Protocol):
    """A causal language model over ``num_slots`` independent cache slots of ``max_model_len`` tokens each."""

    @property
    def vocab_size(self) -> int:
        """V: the width of the logits, which may exceed the number of real tokens."""

    @property
    def num_slots(self) -> int: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def prefill_chunk(self) -> int:
        """Rows of one prefill forward; a multiple of 8."""

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """Write the cache rows ``start .. start + len(token_ids)`` of ``slot``; at most ``prefill_chunk`` tokens.

        ``start`` is a multiple of ``prefill_chunk``, so that a prompt is always cut at the same places.
        """

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """One K7 forward.

        Args:
            token_ids: int64 [B, 8], the anchor and seven drafts of each sequence; dead rows hold 0.
            positions: int64 [B], the position of each anchor; row ``r`` stands at ``positions + r``.
            slots: int64 [B], the cache slot of each sequence.

        Returns:
            Logits [B, 8, V], valid until the next call. Cache rows ``positions .. positions + 8`` are written; those
            behind the accepted prefix are rewritten by the next forward before anything reads them.
        """


@dataclass(frozen=True, slots=True)
class Paging:
    """The cache of a paged target.

    ``decoded``: this device writes the same bits in a step as in a prompt. To attend to ``keys_per_row`` keys takes
    about as long as all else that a row needs.
    """

    blocks: int
    block_size: int
    decoded: bool
    keys_per_row: int = 1024


@dataclass(frozen=True, slots=True)
class PromptRows:
    """A part of a prompt: ``token_ids`` stand at ``start`` (a multiple of 8) and behind in ``slot``."""

    slot: int
    start: int
    token_ids: Sequence[int]


Rows = tuple[int, int, int]
"""A slot, the position of its first row, and how many rows."""


@runtime_checkable
class HiddenSource(Protocol):
    """A target that shows its hidden states, and where in its cache a row lies, to one who keeps rows beside it."""

    @property
    def cache_rows(self) -> int:
        """Rows of the whole cache."""

    def rows_held(self, slot: int) -> int:
        """Rows of the blocks that ``slot`` has."""

    def rows(self, slot: int, start: int, count: int) -> Tensor:
        """Where ``count`` rows of ``slot`` lie in the cache, the first one at position ``start``: int64 [count]."""

    def tap(self, layers: Sequence[int], sink: Callable[[Tensor, Sequence[Rows]], None]) -> None:
        """From now on ``sink`` is told of each forward: the outputs [T, layers * D] of ``layers`` (-1: the embeddings)
        side by side, and whose rows they are.

        Raises:
            ReleaseError: there is no such layer.
        """


@runtime_checkable
class OwnsWorkspace(Protocol):
    """A target that has reserved what it needs, and is locked to it when the engine is warm."""

    @property
    def workspace(self) -> Workspace: ...


@runtime_checkable
class PagedTarget(Target, Protocol):
    """A target whose slots are rows of block tables, and which computes prompts and steps in one forward.

    :meth:`prefill` takes parts that begin at any multiple of 8. A slot has its share of the blocks, if there are enough
    for all, until it is told otherwise.
    """

    @property
    def paging(self) -> Paging: ...

    def set_blocks(self, slot: int, blocks: Sequence[int]) -> None:
        """``slot`` has these blocks from now on, in the order of its rows."""

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        """:meth:`forward`, and beside it the rows of ``prompts``. B may be 0.

        Raises:
            EngineError: a prompt's rows are no numbers.
        """
