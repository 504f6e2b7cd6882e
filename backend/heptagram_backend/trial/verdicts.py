"""What became of constraints, by their digests, so that a bad one is refused at once the second time."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from heptagram_backend.errors import RequestError
from heptagram_wire.errors import WireError

_KEPT: Final = 4_096


class Verdicts:
    """A bounded memory, least recently used ones forgotten first. Thread-safe."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._lock = Lock()
        self._known: OrderedDict[str, WireError | None] = OrderedDict()

    def passed(self, digest: str) -> bool:
        """Whether it was tried and passed.

        Raises:
            RequestError: it was refused before.
        """
        with self._lock:
            if digest not in self._known:
                return False
            self._known.move_to_end(digest)
            refusal = self._known[digest]
        if refusal is not None:
            raise RequestError(refusal.message, code=refusal.code, param=refusal.param)
        return True

    def remember(self, digest: str, refusal: WireError | None) -> None:
        with self._lock:
            self._known[digest] = refusal
            self._known.move_to_end(digest)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)
