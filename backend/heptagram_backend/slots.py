"""Owner of the slots: one for each sequence that may run at once. No torch."""

from __future__ import annotations


class SlotTable:
    """A slot is a row of whatever a target keeps by sequence: its block table, or its cache."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._held: set[int] = set()
        self.total = count

    @property
    def used(self) -> int:
        return len(self._held)

    def can_allocate(self) -> bool:
        return bool(self._free)

    def allocate(self) -> int:
        slot = self._free.pop()
        self._held.add(slot)
        return slot

    def free(self, slot: int) -> None:
        self._held.remove(slot)
        self._free.append(slot)

    def check(self) -> None:
        """Free and held slots are disjoint and together all there are."""
        assert len(self._free) + len(self._held) == self.total
        assert self._held.isdisjoint(self._free)
