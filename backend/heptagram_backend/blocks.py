"""Owner of the key/value cache: blocks of rows, counted references, and what finished prompts left behind. No torch.

A block is free, held by one sequence or more, or cached: held by none, but found again by its content, until its room
is needed. ``free + cached + held = total`` at any time.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

_EVICTED_AT_ONCE = 8
_HELD, _FREE = b"\0", b"\1"


def extend_keys(keys: list[bytes], tokens: Sequence[int], *, block_size: int, count: int, salt: bytes = b"") -> None:
    """Append to ``keys`` until it names the first ``count`` blocks of ``tokens``, each with all that stands before it.

    A digest, because a block that is found is read unseen: two contents must never share a key. Equal contents share
    one if their ``salt`` is the same.
    """
    for place in range(len(keys), count):
        digest = hashlib.blake2b(keys[-1] if keys else salt, digest_size=16)
        digest.update(array("q", tokens[place * block_size : (place + 1) * block_size]).tobytes())
        keys.append(digest.digest())


class BlockPool:
    """Blocks ``0 .. total - 1`` of ``block_size`` rows.

    Neighbouring blocks are read without a copy, so a sequence gets runs of them with room to grow behind.
    """

    def __init__(self, *, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self._map = bytearray(_FREE * total)
        self._references: Counter[int] = Counter()
        self._keys: dict[int, bytes] = {}
        self._published: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # cached blocks, the least recently used first

    @property
    def free(self) -> int:
        return self._map.count(_FREE)

    @property
    def cached(self) -> int:
        return len(self._idle)

    @property
    def held(self) -> int:
        return len(self._references)

    def blocks_for(self, rows: int) -> int:
        return -(-rows // self.block_size)

    def can_allocate(self, count: int, *, beside: Iterable[int] = ()) -> bool:
        """``count`` blocks can be had, while the cached ones among ``beside`` are kept."""
        return count <= self.free + self.cached - sum(block in self._idle for block in beside)

    def allocate(self, count: int, *, after: int | None = None) -> list[int]:
        """Hold ``count`` more blocks, behind block ``after`` as far as there is room."""
        if not self.can_allocate(count):
            raise RuntimeError(f"{count} blocks wanted, {self.free + self.cached} available")
        taken: list[int] = []
        while len(taken) < count:
            if self.free < count - len(taken):
                self._evict(count - len(taken))
            last = taken[-1] if taken else after
            first = self._behind(last) if last is not None else None
            taken += self._take(self._roomy(count - len(taken)) if first is None else first, count - len(taken))
        return taken

    def hold(self, blocks: Iterable[int]) -> None:
        """One more reference to blocks that :meth:`match` found."""
        for block in blocks:
            self._idle.pop(block, None)
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference to each. What is published stays cached; the end of a prefix is evicted before it."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                del self._references[block]
                if block in self._keys:
                    self._idle[block] = None
                else:
                    self._map[block] = _FREE[0]

    def match(self, keys: Iterable[bytes]) -> list[int]:
        """The published blocks of the longest prefix of ``keys``."""
        found = []
        for key in keys:
            if (block := self._published.get(key)) is None:
                break
            found.append(block)
        return found

    def publish(self, block: int, key: bytes) -> None:
        """A held block is complete and may be shared. The first one of a content stays the one that is found."""
        assert self._references[block]
        if block not in self._keys and key not in self._published:
            self._published[key] = block
            self._keys[block] = key

    def check(self) -> None:
        """Integrity: every block is free, cached or held; what is found by a key is what bears it."""
        assert self.free + self.cached + self.held == self.total
        assert all(count > 0 for count in self._references.values())
        assert all(self._map[block] == _HELD[0] for block in (*self._references, *self._idle))
        assert self._references.keys().isdisjoint(self._idle)
        assert self._keys == {block: key for key, block in self._published.items()}
        assert self._idle.keys() <= self._keys.keys() <= self._references.keys() | self._idle.keys()

    def _evict(self, count: int) -> None:
        # A few at once: what one sequence left lies together and makes a hole of use.
        for _ in range(min(len(self._idle), max(count, _EVICTED_AT_ONCE))):
            block, _ = self._idle.popitem(last=False)
            del self._published[self._keys.pop(block)]
            self._map[block] = _FREE[0]

    def _behind(self, block: int) -> int | None:
        return block + 1 if self._map[block + 1 : block + 2] == _FREE else None

    def _take(self, first: int, count: int) -> list[int]:
        """Hold the free blocks from ``first`` on, at most ``count``, up to the next one that is not free."""
        end = self._map.find(_HELD, first, first + count)
        taken = range(first, min(first + count, self.total) if end < 0 else end)
        self._map[taken.start : taken.stop] = _HELD * len(taken)
        self._references.update(taken)
        return list(taken)

    def _roomy(self, count: int) -> int:
        """Where to begin in the largest hole: in its middle if a sequence may be growing into it, and if it fits."""
        size, first = max((len(hole), -place) for place, hole in self._holes())
        first = -first
        if first == 0 or first - 1 not in self._references:
            return first
        return first + max(0, min(size // 2, size - count))

    def _holes(self) -> Iterable[tuple[int, bytes]]:
        place = 0
        for hole in bytes(self._map).split(_HELD):
            if hole:
                yield place, hole
            place += len(hole) + 1
