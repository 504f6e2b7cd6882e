"""Token ids to text, one token at a time, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Incremental UTF-8 over the bytes of each token; control tokens have no text.

    Bytes that are no UTF-8 become U+FFFD, as in a decode of the whole.
    """

    def __init__(self, token_bytes: Sequence[bytes | None]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def piece(self, token: int) -> bytes:
        """The bytes of one token; empty for control tokens and for ids behind the vocabulary."""
        return (self._token_bytes[token] or b"") if token < len(self._token_bytes) else b""

    def feed(self, token: int) -> str:
        return self._decoder.decode(self.piece(token))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)
