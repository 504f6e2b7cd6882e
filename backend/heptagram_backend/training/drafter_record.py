"""Hidden states, taken down while an engine answers.

The engine computes them anyway. They are kept beside its cache row by row, as a drafter's own keys and values are, so a
prefix that is found in the cache brings them along; a drafter that only records takes them from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.drafts.base import Drafter, Proposal
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines.parts import Vocabulary, assemble, make_parts
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.release import Release
from heptagram_backend.targets import load_target
from heptagram_backend.targets.base import HiddenSource, Rows
from heptagram_backend.tokenizer import CheckpointTokenizer


class HiddenRows:
    """The target's hidden states, row by row beside its cache: [cache rows, taps * D]."""

    def __init__(self, source: HiddenSource, layers: Sequence[int]) -> None:
        self._source = source
        self._rows = torch.empty(0)
        source.tap(layers, self._write)

    def read(self, slot: int, start: int, end: int) -> Tensor:
        """Those of the positions ``start .. end`` of ``slot``."""
        return self._rows.index_select(0, self._source.rows(slot, start, end - start))

    def _write(self, hidden: Tensor, spans: Iterable[Rows]) -> None:
        if not len(self._rows):
            self._rows = hidden.new_empty((self._source.cache_rows, hidden.shape[1]))
        index = torch.cat([self._source.rows(*span) for span in spans])
        self._rows.index_copy_(0, index, hidden)


class Recorder:
    """A drafter that proposes what ``inner`` does, and takes down the hidden states of its sequence.

    Implements :class:`drafts.base.Drafter`. All rows before the last token are computed whenever it is told of one.
    """

    def __init__(self, inner: Drafter, rows: HiddenRows) -> None:
        self._inner, self._rows = inner, rows
        self._slot: int | None = None
        self._length = self._taken = 0
        self._parts: list[Tensor] = []

    @property
    def hidden(self) -> Tensor:
        """[T - 1, taps * D]."""
        return torch.cat(self._parts)

    def extend(self, tokens: Sequence[int]) -> None:
        self._inner.extend(tokens)
        self._length += len(tokens)
        if self._slot is not None:
            self._take(self._slot)

    def seat(self, slot: int) -> None:
        self._inner.seat(slot)
        self._slot = slot
        self._take(slot)

    def propose(self, ahead: Sequence[int], limit: int, allowed: NDArray[np.int32] | None = None) -> Proposal:
        return self._inner.propose(ahead, limit, allowed)

    def _take(self, slot: int) -> None:
        if self._length - 1 > self._taken:
            self._parts.append(self._rows.read(slot, self._taken, self._length - 1))
            self._taken = self._length - 1


class Recording:
    """Recorders for the sequences of an engine, whose parts are made with :meth:`policy`."""

    def __init__(self, source: HiddenSource, layers: Sequence[int]) -> None:
        self._rows = HiddenRows(source, layers)
        self._made: list[Recorder] = []

    def policy(self, name: str) -> DraftPolicy:
        """That of ``name``, recorded."""
        policy = draft_policy(name)

        def make() -> Drafter:
            self._made.append(Recorder(policy.make(), self._rows))
            return self._made[-1]

        return replace(policy, make=make)

    def take(self) -> Recorder:
        """The recorder of the request that was submitted last."""
        return self._made.pop()


def recorded_engine(release: Release, checkpoint: Path, layers: Sequence[int]) -> tuple[Engine, Recording]:
    """The engine of a release, with the outputs of its target's ``layers`` recorded.

    Raises:
        ReleaseError: the checkpoint cannot be run, or its target shows no hidden states.
    """
    options, tokenizer = release.engine, CheckpointTokenizer(checkpoint)
    target = load_target(options, checkpoint)
    if not isinstance(target, HiddenSource):
        raise ReleaseError(f"answers: the target of {checkpoint} shows no hidden states")
    recording = Recording(target, layers)
    pieces = tokenizer.token_bytes(load_format(release.format).markers)
    parts = make_parts(
        target=target,
        vocabulary=Vocabulary(pieces, tokenizer.encode, frozenset(tokenizer.eos_ids), tokenizer.vocabulary_hash),
        factory=load_grammar_factory(pieces, vocab_width=target.vocab_size, stop_token_ids=tokenizer.eos_ids),
        options=options,
        policy=recording.policy,
        limits=release.limits.grammar,
    )
    limits = EngineLimits("training", options.max_queue_size, options.max_deadline_ms, tokenizer.vocabulary_hash)
    return assemble(parts, limits), recording
