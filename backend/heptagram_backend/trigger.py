"""Watches ordinary output for the text that opens a tool call."""

from __future__ import annotations


class TriggerWatch:
    """Finds ``text`` in a stream of token bytes, whatever the token boundaries; with ``after``, only behind that, and
    with ``opening`` too, anywhere unless the stream begins with ``opening``."""

    def __init__(self, text: str, after: str = "", opening: str = "") -> None:
        self._text = text.encode()
        self._after = after.encode()  # still to come; empty once it has
        self._opening = opening.encode()  # still to be compared with; empty once it was
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
        if len(joined) < len(self._opening) and self._opening.startswith(joined):
            self._tail = joined
            return
        self._after, self._opening = self._needed(joined), b""
        behind = self._behind(joined)
        if behind <= len(joined):
            joined, self._after = joined[behind:], b""
        keep = len(self._after or self._text) - 1
        self._tail = joined[-keep:] if keep else b""

    def reset(self) -> None:
        """Text is free again behind a finished call; what stands before it cannot open another one."""
        self._tail = b""

    def _needed(self, joined: bytes) -> bytes:
        """What must come before the text; ``joined`` is the whole stream as long as its opening is not known."""
        return self._after if joined.startswith(self._opening) or self._opening.startswith(joined) else b""

    def _behind(self, joined: bytes) -> int:
        """Where the search may begin: beyond the end as long as what must come before has not come."""
        after = self._needed(joined)
        place = joined.find(after)
        return len(joined) + 1 if place < 0 else place + len(after)
