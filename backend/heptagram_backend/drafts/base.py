"""What proposes draft tokens. A drafter belongs to one sequence and can be wrong at no cost but speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    def extend(self, tokens: Sequence[int]) -> None:
        """The sequence went on by these tokens (the prompt first, then what is committed)."""

    def propose(self, ahead: Sequence[int], limit: int) -> Sequence[int]:
        """At most ``limit`` tokens that may follow the sequence and then ``ahead``."""


class NoDrafts:
    """The null drafter: plain decoding, one token a step."""

    def extend(self, tokens: Sequence[int]) -> None:
        del tokens

    def propose(self, ahead: Sequence[int], limit: int) -> Sequence[int]:
        del ahead, limit
        return ()
