"""Watches ordinary output for the text that opens a tool call."""

from __future__ import annotations


class TriggerWatch:
    """Finds ``text`` in a stream of token bytes, whatever the token boundaries; with ``after``, only behind that."""

    def __init__(self, text: str, after: str = "") -> None:
        self._text = text.encode()
        self._after = after.encode()  # still to come; empty once it has
        self._tail = b""

    def completes(self, piece: bytes) -> bytes | None:
        """What of the trigger stands *before* ``piece`` if ``piece`` completes it, else ``None``.

        >>> watch = TriggerWatch("<tool>")
        >>> watch.advance(b"so <to")
        >>> watch.completes(b"ol> {")
        b'<to'
        """
        joined = self._tail + piece
        start = joined.find(self._text, self._behind(joined))
        return None if start < 0 else joined[start : max(start, len(self._tail))]

    def advance(self, piece: bytes) -> None:
        """``piece`` was committed."""
        joined = self._tail + piece
        behind = self._behind(joined)
        if behind <= len(joined):
            joined, self._after = joined[behind:], b""
        keep = len(self._after or self._text) - 1
        self._tail = joined[-keep:] if keep else b""

    def reset(self) -> None:
        """Text is free again behind a finished call; what stands before it cannot open another one."""
        self._tail = b""

    def _behind(self, joined: bytes) -> int:
        """Where the search may begin: beyond the end as long as what must come before has not come."""
        place = joined.find(self._after)
        return len(joined) + 1 if place < 0 else place + len(self._after)
