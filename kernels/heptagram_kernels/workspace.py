"""Memory that outlives a step: declared by those who use it, owned by the caller, fixed once sealed.

Target, drafter and step each have a workspace of their own and reserve what they declare before the first step. The
warm-up over, :func:`lock` forbids any growth, so that a captured graph keeps its addresses and a step can never fail
for want of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Declaration:
    """One persistent tensor that a user needs."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Workspace:
    """Persistent, zero-initialised tensors by name, all of one ``owner``."""

    def __init__(self, owner: str, *, device: str = "cpu") -> None:
        self.owner = owner
        self._device = device
        self._tensors: dict[str, Tensor] = {}
        self._sealed = False

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    @property
    def sealed(self) -> bool:
        return self._sealed

    def reserve(self, declarations: Iterable[Declaration]) -> None:
        """Allocate every declared tensor, or none of them.

        Raises:
            ValueError: sealed already, a name is taken, or a shape is not positive.
        """
        wanted = tuple(declarations)
        self._check(wanted)
        allocated = {want.name: torch.zeros(want.shape, dtype=want.dtype, device=self._device) for want in wanted}
        self._tensors.update(allocated)

    def take(self, name: str) -> Tensor:
        """The tensor reserved as ``name``; always the same one.

        Raises:
            KeyError: nobody reserved it.
        """
        try:
            return self._tensors[name]
        except KeyError:
            raise KeyError(f"the workspace of {self.owner} has no {name!r}; declare it before warm-up") from None

    def seal(self) -> None:
        """No growth from here on; idempotent."""
        self._sealed = True

    def spans(self) -> Iterator[tuple[int, int, str]]:
        """First and end address of each tensor, and its name."""
        for name, tensor in self._tensors.items():
            yield tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name

    def _check(self, wanted: tuple[Declaration, ...]) -> None:
        if self._sealed:
            names = ", ".join(f"{want.name} ({want.nbytes} bytes)" for want in wanted)
            raise ValueError(f"the workspace of {self.owner} is locked; declare {names} before warm-up")
        taken = set(self._tensors)
        for want in wanted:
            if want.name in taken:
                raise ValueError(f"workspace tensor {want.name!r} is reserved twice; give each user its own prefix")
            if any(size < 1 for size in want.shape):
                raise ValueError(f"workspace tensor {want.name!r} has shape {want.shape}; every size must be positive")
            taken.add(want.name)


def lock(*workspaces: Workspace) -> None:
    """Seal all ``workspaces``, once none of their tensors shares memory with another.

    Raises:
        ValueError: two overlap; the message names both.
    """
    for first, second in pairwise(sorted(span for workspace in workspaces for span in workspace.spans())):
        if second[0] < first[1]:
            raise ValueError(f"workspace tensors {first[2]!r} and {second[2]!r} share memory")
    for workspace in workspaces:
        workspace.seal()
