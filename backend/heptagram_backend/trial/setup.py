"""What a child is told first: the same two ends read and write it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

OUT_OF_MEMORY: Final = 77  # a child's exit status


@dataclass(frozen=True, slots=True)
class Setup:
    """The vocabulary, as the server's own factory has it, and the limits of one compile."""

    token_bytes: Sequence[bytes | None]
    vocab_width: int
    stop_token_ids: Sequence[int]
    seconds: float  # of processor time
    memory: int  # bytes beyond what the child needs to be ready
    cache: int  # bytes of the server's cache, which the compiled constraint must fit into

    def line(self) -> bytes:
        """As the first line of a child's input."""
        tokens = [None if token is None else base64.b64encode(token).decode() for token in self.token_bytes]
        rest = [self.vocab_width, [*self.stop_token_ids], self.seconds, self.memory, self.cache]
        return json.dumps([tokens, *rest]).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> Setup:
        tokens, *rest = json.loads(line)
        return cls([None if token is None else base64.b64decode(token) for token in tokens], *rest)
