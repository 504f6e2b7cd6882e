"""Watches ordinary output for the text that opens a tool call."""

from __future__ import annotations


class TriggerWatch:
    """Finds ``text`` in a stream of token bytes, whatever the token boundaries."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        self._tail = b""

    def completes(self, piece: bytes) -> bytes | None:
        """What of the trigger stands *before* ``piece`` if ``piece`` completes it, else ``None``.

        >>> watch = TriggerWatch("<tool>")
        >>> watch.advance(b"so <to")
        >>> watch.completes(b"ol> {")
        b'<to'
        """
        joined = self._tail + piece
        start = joined.find(self._text)
        return None if start < 0 else joined[start : max(start, len(self._tail))]

    def advance(self, piece: bytes) -> None:
        """``piece`` was committed."""
        keep = len(self._text) - 1
        self._tail = (self._tail + piece)[-keep:] if keep else b""

    def reset(self) -> None:
        """Text is free again behind a finished call; what stands before it cannot open another one."""
        self._tail = b""
