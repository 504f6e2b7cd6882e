"""The ordered argument list of the K7 step: what crosses the border between host, target and device operations.

The list is recorded in ``release.yaml`` and in compiled artefacts; load compares the recorded with the installed one.
Every persistent tensor of a step is allocated from this list, so both sides of the border have the same one.
Symbols: B sequences in the step, R = 8 rows of each (anchor and seven drafts), K = 7 drafts, C candidates for each,
V logits width, W = ceil(V / 32) mask words, P rows of the mask pool, S slots, T = S + 1 rows of state (the last one is
that of padding sequences), M entries of a block table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from heptagram_kernels.workspace import Declaration

Role = Literal["input", "state", "output"]
Writer = Literal["host", "target", "device"]

ROWS: Final = 8
"""Rows of one sequence in every decode forward: the anchor and seven drafts."""

CANDIDATES: Final = 4
"""Likeliest tokens that a drafter gives for each place; the host takes another where a grammar forbids the first."""


@dataclass(frozen=True, slots=True)
class ArgSpec:
    """One argument: the allowed dtypes, the shape in symbols, and who fills it in a step (``writer``)."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    shape: tuple[str, ...]
    role: Role
    writer: Writer

    def describe(self) -> str:
        """The canonical line: ``name dtype[|dtype] [shape] role writer``."""
        dtypes = "|".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
        return f"{self.name} {dtypes} [{','.join(self.shape)}] {self.role} {self.writer}"


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the symbols stand for in one process and step."""

    batch: int
    vocab_size: int
    pool_rows: int
    slots: int = 0
    table: int = 0

    @property
    def words(self) -> int:
        return words_for(self.vocab_size)

    def resolve(self, shape: Sequence[str]) -> tuple[int, ...]:
        sizes = {
            "B": self.batch,
            "R": ROWS,
            "K": ROWS - 1,
            "C": CANDIDATES,
            "V": self.vocab_size,
            "W": self.words,
            "P": self.pool_rows,
            "S": self.slots,
            "T": self.slots + 1,
            "M": self.table,
        }
        return tuple(sizes[symbol] for symbol in shape)


@dataclass(frozen=True, slots=True)
class K7Layout:
    """An ordered argument list."""

    arguments: tuple[ArgSpec, ...]

    def describe(self) -> tuple[str, ...]:
        """One canonical line an argument, in order."""
        return tuple(argument.describe() for argument in self.arguments)

    def check(self, recorded: Iterable[str]) -> None:
        """Compare a recorded list with this one.

        Raises:
            ValueError: they differ; the message shows the first difference.
        """
        theirs, ours = tuple(recorded), self.describe()
        for index in range(max(len(theirs), len(ours))):
            old = theirs[index] if index < len(theirs) else "nothing"
            new = ours[index] if index < len(ours) else "nothing"
            if old != new:
                raise ValueError(
                    f"k7_layout[{index}]: recorded `{old}`, installed `{new}`; "
                    "write the release again with the installed version, or install the version that wrote it"
                )

    def declare(self, bindings: Bindings, *names: str, owner: str) -> tuple[Declaration, ...]:
        """The persistent tensors called ``names``, as ``owner`` reserves them."""
        known = {argument.name: argument for argument in self.arguments}
        return tuple(
            Declaration(f"{owner}.{name}", known[name].dtypes[0], bindings.resolve(known[name].shape)) for name in names
        )

    def validate(self, tensors: Mapping[str, Tensor], bindings: Bindings) -> None:
        """Compare the tensors of one operation, by argument name, with the list; no values are read.

        Raises:
            ValueError: an argument is unknown, or has another dtype or shape.
        """
        if unknown := tensors.keys() - {argument.name for argument in self.arguments}:
            raise ValueError(f"{sorted(unknown)[0]}: not an argument of the K7 step; see K7_LAYOUT.describe()")
        for argument in self.arguments:
            tensor = tensors.get(argument.name)
            if tensor is None:
                continue
            shape = bindings.resolve(argument.shape)
            if tensor.dtype not in argument.dtypes or tensor.shape != shape:
                raise ValueError(
                    f"{argument.name}: got {tensor.dtype} {list(tensor.shape)}, "
                    f"need {argument.describe()} with [{','.join(argument.shape)}] = {list(shape)}"
                )


def words_for(vocab_size: int) -> int:
    """Int32 words of one packed mask row: ``ceil(V / 32)``."""
    return -(-vocab_size // 32)


_INT64 = (torch.int64,)
LOGITS_DTYPES: Final = (torch.bfloat16, torch.float32)

K7_LAYOUT: Final = K7Layout(
    (
        ArgSpec("token_ids", _INT64, ("B", "R"), "input", "device"),
        ArgSpec("positions", _INT64, ("B",), "input", "device"),
        ArgSpec("slots", _INT64, ("B",), "input", "host"),
        ArgSpec("guards", _INT64, ("B",), "input", "host"),
        ArgSpec("block_tables", _INT64, ("S", "M"), "state", "host"),
        ArgSpec("draft_counts", _INT64, ("B",), "input", "device"),
        ArgSpec("mask_pool", (torch.int32,), ("P", "W"), "state", "host"),
        ArgSpec("mask_rows", _INT64, ("B", "R"), "input", "host"),
        ArgSpec("state_tokens", _INT64, ("T", "R"), "state", "device"),
        ArgSpec("state_positions", _INT64, ("T",), "state", "device"),
        ArgSpec("state_draft_counts", _INT64, ("T",), "state", "device"),
        ArgSpec("state_draft_limits", _INT64, ("T",), "state", "device"),
        ArgSpec("state_max_drafts", _INT64, ("T",), "state", "host"),
        ArgSpec("state_generations", _INT64, ("T",), "state", "host"),
        ArgSpec("logits", LOGITS_DTYPES, ("B", "R", "V"), "state", "target"),
        ArgSpec("verified", _INT64, ("B", "R"), "output", "device"),
        ArgSpec("finished", _INT64, ("B",), "output", "device"),
        ArgSpec("counts", _INT64, ("B",), "output", "device"),
        ArgSpec("next_drafts", _INT64, ("B", "K"), "output", "device"),
        ArgSpec("next_counts", _INT64, ("B",), "output", "device"),
        ArgSpec("candidates", _INT64, ("B", "K", "C"), "output", "device"),
        ArgSpec("confidences", (torch.float32,), ("B", "K"), "output", "device"),
    )
)
