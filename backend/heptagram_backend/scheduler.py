"""Who computes in a turn, and with which blocks. Bookkeeping only, no torch.

Rank is priority, then arrival. Running sequences come first: each gets the blocks of its next step, and where there are
none left the one of the lowest rank is preempted: it gives up its blocks, and writes prompt and output again when its
turn comes. So the first of all can always go on. What is left admits waiting sequences, each with blocks for all that
it has; one that does not fit is overtaken, but not for ever.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import count

from heptagram_backend.blocks import BlockPool, extend_keys
from heptagram_backend.plan import ROWS
from heptagram_backend.sequence import Sequence, State
from heptagram_backend.slots import SlotTable

PATIENCE = 8
"""How many later sequences may overtake a waiting one that does not fit yet."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one forward holds, in rows. Chunks of a prompt begin at multiples of ``unit`` and have at most ``chunk``.

    While others compute too, a prompt gets at most ``long_prefill_token_threshold`` rows, so that they hardly wait: so
    many at its beginning, and fewer the more keys each has to attend to. ``keys_per_row`` keys count as one row more.
    """

    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    chunk: int
    unit: int
    keys_per_row: int

    def shared(self, cached: int) -> int:
        """Most rows behind ``cached`` others, beside steps and other prompts."""
        return min(self.chunk, self.long_prefill_token_threshold * self.keys_per_row // (self.keys_per_row + cached))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next ``count`` tokens of a sequence that are not in the cache yet."""

    sequence: Sequence
    count: int

    @property
    def tokens(self) -> list[int]:
        start = self.sequence.cached
        return self.sequence.tokens[start : start + self.count]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is computed together: K7 steps and parts of prompts."""

    decode: tuple[Sequence, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    def __len__(self) -> int:
        return len(self.decode) + len(self.chunks)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return self.decode + tuple(chunk.sequence for chunk in self.chunks)

    def living(self) -> Turn:
        """The same without those who have ended since."""
        decode = tuple(sequence for sequence in self.decode if sequence.state is not State.DONE)
        return Turn(decode, tuple(chunk for chunk in self.chunks if chunk.sequence.state is not State.DONE))

    def apart(self) -> list[Turn]:
        """The same, each sequence alone."""
        steps = [Turn(decode=(sequence,)) for sequence in self.decode]
        return steps + [Turn(chunks=(chunk,)) for chunk in self.chunks]


class Scheduler:
    """A sequence is waiting, running or done; never in two places.

    ``caching`` shares the blocks of equal prefixes; with ``decoded`` also blocks that steps wrote, not prompts. The
    answers to one request share theirs in any case: the first writes the prompt, the others wait until it is written.
    ``tables`` is told the blocks of a slot whenever they change.
    """

    def __init__(
        self,
        *,
        slots: int,
        pool: BlockPool,
        budget: Budget,
        caching: bool = False,
        decoded: bool = False,
        tables: Callable[[int, Seq[int]], None] = lambda slot, blocks: None,  # noqa: ARG005
    ) -> None:
        self.slots = SlotTable(slots)
        self.pool = pool
        self.preemptions = 0
        self.prefix_hit_tokens = 0
        self._budget = budget
        self._caching = caching
        self._decoded = decoded
        self._tables = tables
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._arrivals = count()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        """Every live sequence, by rank within each place."""
        return iter((*self._running, *self._waiting))

    def can_ever_fit(self, tokens: int) -> bool:
        """A sequence of ``tokens`` in all fits the pool when it has it for itself."""
        return self._blocks_for(tokens) <= self.pool.total

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait; how many may is the engine's to say."""
        sequence.rank = (sequence.request.priority, next(self._arrivals))
        insort(self._waiting, sequence, key=_rank)

    def schedule(self) -> Turn:
        """What to compute now. Sequences are admitted and preempted on the way."""
        before = self.preemptions
        # One that is preempted by another before it cannot decode any more when its turn comes.
        decode = [sequence for sequence in [*self._running] if sequence.can_decode and self._grow(sequence)]
        if self.preemptions == before:  # what was just taken away is not given out again
            decode += [sequence for sequence in self._admit() if sequence.can_decode]
        return Turn(tuple(decode), tuple(self._chunks(len(decode))))

    def stalled(self, turn: Turn) -> Sequence | None:
        """Whom to give up because nothing can go on: the last of those who hold blocks, or of all.

        Cannot be while every block is accounted for and requests that can never fit are refused; it is what keeps a
        fault of ours from being a silence.
        """
        if turn or any(sequence.pending_grammar for sequence in self._running):
            return None
        return max(self._running or self._waiting, key=_rank, default=None)

    def advance(self, chunk: Chunk) -> None:
        """``chunk`` is in the cache."""
        sequence = chunk.sequence
        sequence.cached += chunk.count
        sequence.prefilled = sequence.cached
        self._publish(sequence)
        if not sequence.prefill_left:
            sequence.move(State.DECODING)

    def remove(self, sequence: Sequence, *, sound: bool = True) -> None:
        """Take a live sequence out of wherever it is and free its slot, blocks and matcher. Exactly once for each.

        What it leaves in the cache serves others only if it is ``sound``.
        """
        if sequence.state is State.QUEUED:
            self._waiting.remove(sequence)
        else:
            self._vacate(sequence, sound=sound)
        sequence.move(State.DONE)
        sequence.release_grammar()

    def check(self) -> None:
        """Integrity: every running sequence holds a slot of its own and its blocks; a waiting one holds nothing."""
        self.slots.check()
        self.pool.check()
        held = [sequence.slot for sequence in self._running]
        assert None not in held
        assert len(set(held)) == len(held) == self.slots.used
        assert all(sequence.slot is None and sequence.state is State.QUEUED for sequence in self._waiting)
        assert not any(sequence.blocks for sequence in self._waiting)
        assert len({block for sequence in self._running for block in sequence.blocks}) == self.pool.held
        assert self._running == sorted(self._running, key=_rank)
        assert self._waiting == sorted(self._waiting, key=_rank)

    # --- blocks ---

    def _blocks_for(self, tokens: int) -> int:
        # The step whose anchor is the last token writes eight rows from it on.
        return self.pool.blocks_for(tokens - 1 + ROWS)

    def _grow(self, sequence: Sequence) -> bool:
        """Give a running sequence the blocks of its next step; False if it must wait for those before it."""
        need = self._blocks_for(len(sequence.tokens)) - len(sequence.blocks)
        if need <= 0:
            return True
        while not self.pool.can_allocate(need):
            last = self._running[-1]
            if last is sequence:
                return False
            self._preempt(last)
        assert sequence.slot is not None
        sequence.blocks += self.pool.allocate(need, after=sequence.blocks[-1])
        self._tables(sequence.slot, sequence.blocks)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        sequence.stats.preemptions += 1
        self._vacate(sequence, sound=True)
        sequence.move(State.QUEUED)
        insort(self._waiting, sequence, key=_rank)

    def _vacate(self, sequence: Sequence, *, sound: bool) -> None:
        """Out of the running, without slot, blocks and rows."""
        assert sequence.slot is not None
        if sound:
            self._publish(sequence)
        self._running.remove(sequence)
        self.pool.release(sequence.blocks)
        self.slots.free(sequence.slot)
        sequence.slot = None
        sequence.blocks = []
        sequence.cached = sequence.prefilled = 0

    def _publish(self, sequence: Sequence) -> None:
        """Offer complete blocks to others; rows of rejected drafts are never among them."""
        if not self._shares(sequence):
            return
        rows = sequence.cached if self._decoded else sequence.prefilled
        complete = rows // self.pool.block_size
        self._name(sequence, complete)
        for block, key in zip(sequence.blocks[:complete], sequence.block_keys, strict=False):
            self.pool.publish(block, key)

    def _name(self, sequence: Sequence, blocks: int) -> None:
        salt = b"" if self._caching else sequence.id.encode()
        size = self.pool.block_size
        extend_keys(sequence.block_keys, sequence.tokens, block_size=size, count=blocks, salt=salt)

    def _shares(self, sequence: Sequence) -> bool:
        return self._caching or sequence.request.n > 1

    # --- admission ---

    def _admit(self) -> list[Sequence]:
        """Start whoever may, by rank. Who finds all of its prompt in the cache can decode at once."""
        admitted: list[Sequence] = []
        overtaken: list[Sequence] = []
        for sequence in [*self._waiting]:
            if sequence.leader is not None and sequence.leader.state in (State.QUEUED, State.PREFILLING):
                continue
            if not self.slots.can_allocate() or any(one.overtaken >= PATIENCE for one in overtaken):
                break
            shared = self._shared(sequence)
            need = self._blocks_for(len(sequence.tokens)) - len(shared)
            # One block more for each that may grow, or the newcomer would soon be preempted by their growth.
            growing = sum(map(self._may_grow, self._running))
            if not self.pool.can_allocate(need + growing, beside=shared):
                overtaken.append(sequence)
                continue
            self._start(sequence, shared, need)
            admitted.append(sequence)
            for one in overtaken:
                one.overtaken += 1
        return admitted

    def _may_grow(self, sequence: Sequence) -> bool:
        return len(sequence.blocks) < self._blocks_for(sequence.prompt_tokens + sequence.request.max_tokens)

    def _shared(self, sequence: Sequence) -> list[int]:
        """Blocks of others that hold the beginning of ``sequence``; the last token is never among them."""
        if not self._shares(sequence):
            return []
        complete = (len(sequence.tokens) - 1) // self.pool.block_size
        self._name(sequence, complete)
        return self.pool.match(sequence.block_keys[:complete])

    def _start(self, sequence: Sequence, shared: list[int], need: int) -> None:
        self.pool.hold(shared)
        after = shared[-1] if shared else None
        sequence.blocks = shared + self.pool.allocate(need, after=after)
        sequence.slot = self.slots.allocate()
        self._tables(sequence.slot, sequence.blocks)
        sequence.cached = sequence.prefilled = len(shared) * self.pool.block_size
        if not sequence.stats.preemptions and sequence.leader is None:  # what is of its own is no other prompt's
            self.prefix_hit_tokens += sequence.cached
        self._waiting.remove(sequence)
        insort(self._running, sequence, key=_rank)
        sequence.move(State.PREFILLING)
        sequence.stats.admit()
        if not sequence.prefill_left:
            sequence.move(State.DECODING)

    # --- prompts ---

    def _chunks(self, decoding: int) -> Iterator[Chunk]:
        """Share what the steps leave of the budget. Each turn writes some of a prompt, if there is one."""
        prefilling = [sequence for sequence in self._running if sequence.state is State.PREFILLING]
        room = self._budget.max_num_batched_tokens - ROWS * decoding
        crowded = decoding or len(prefilling) > 1
        for place, sequence in enumerate(prefilling):
            limit = self._budget.shared(sequence.cached) if crowded else self._budget.chunk
            least = 0 if place else min(sequence.prefill_left, self._budget.unit)
            size = self._cut(sequence.prefill_left, min(limit, room)) or least
            if size:
                room -= size
                yield Chunk(sequence, size)

    def _cut(self, left: int, room: int) -> int:
        return left if left <= room else max(0, room // self._budget.unit * self._budget.unit)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
