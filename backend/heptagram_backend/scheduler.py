"""Who runs: a queue in order of arrival, and the cache slots. Bookkeeping only, no torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from heptagram_backend.sequence import Sequence, State


class SlotTable:
    """Owner of the cache slots."""

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


class Scheduler:
    """First come, first served. A sequence is in the queue, in a slot, or done; never in two places."""

    def __init__(self, *, slots: int) -> None:
        self.slots = SlotTable(slots)
        self._queue: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        """Every live sequence, oldest first within each place."""
        return iter((*self._running, *self._queue))

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end of the queue; how many there may be is the engine's to say."""
        self._queue.append(sequence)

    def admit(self) -> list[Sequence]:
        """Give free slots to the oldest waiting sequences."""
        admitted = []
        while self._queue and self.slots.can_allocate():
            sequence = self._queue.popleft()
            sequence.slot = self.slots.allocate()
            sequence.move(State.PREFILLING)
            self._running.append(sequence)
            admitted.append(sequence)
        return admitted

    def next_prefill(self) -> Sequence | None:
        """The oldest sequence whose prompt is not in the cache yet."""
        return next((sequence for sequence in self._running if sequence.state is State.PREFILLING), None)

    def decodable(self) -> list[Sequence]:
        return [sequence for sequence in self._running if sequence.can_decode]

    def remove(self, sequence: Sequence) -> None:
        """Take a live sequence out of wherever it is and free its slot and matcher. Exactly once for each."""
        if sequence.state is State.QUEUED:
            self._queue.remove(sequence)
        else:
            self._running.remove(sequence)
        sequence.move(State.DONE)
        if sequence.slot is not None:
            slot, sequence.slot = sequence.slot, None
            self.slots.free(slot)
        sequence.release_grammar()

    def check(self) -> None:
        """Integrity: every running sequence holds one slot of its own, no waiting one does."""
        self.slots.check()
        held = [sequence.slot for sequence in self._running]
        assert None not in held
        assert len(set(held)) == len(held) == self.slots.used
        assert all(sequence.slot is None and sequence.state is State.QUEUED for sequence in self._queue)
