"""Stop strings in streamed text: found across any chunking, trimmed, never sent."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text through until one of ``stops`` is complete; holds back only what may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """Text that may be sent now. After a hit nothing comes any more."""
        if self.hit or not self._stops:
            return "" if self.hit else text
        text = self._held + text
        place = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if place >= 0:
            self.hit, self._held = True, ""
            return text[:place]
        keep = self._partial(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text is over: what was held back was no stop string."""
        held, self._held = self._held, ""
        return held

    def _partial(self, text: str) -> int:
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for size in range(longest, 0, -1):
            tail = text[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
