"""The scheduler without a model: whatever happens, nothing is lost, nobody waits for ever, and no row is spoiled."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from heptagram_backend.blocks import BlockPool
from heptagram_backend.constraint import Grammar
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.drafts.base import NoDrafts
from heptagram_backend.emit import Emitter
from heptagram_backend.formats import load_format
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.plan import ROWS
from heptagram_backend.scheduler import PATIENCE, Budget, Scheduler, Turn
from heptagram_backend.sequence import Sequence, State
from heptagram_backend.validate import OutputValidator
from tests.engine.harness import Collector

BLOCK = 8


def make_sequence(
    name: int, prompt: int, *, max_tokens: int, priority: int = 0, token: int = 1, n: int = 1
) -> Sequence:
    output = OutputSpec("chatml_json")
    emitter = Emitter(
        detokenizer=Detokenizer([]), parser=load_format("chatml_json").parser(output), validator=OutputValidator({})
    )
    request = GenerationRequest((token,) * prompt, output, "model", max_tokens, priority=priority, n=n)
    return Sequence(str(name), request, Collector(), NoDrafts(), emitter, frozenset())


class Bench:
    """A scheduler, and a stand-in for the model that remembers of every cache row whose prefix it holds."""

    def __init__(
        self, *, slots: int = 3, blocks: int = 6, caching: bool = True, decoded: bool = True, threshold: int = 8
    ) -> None:
        pool = BlockPool(total=blocks, block_size=BLOCK)
        budget = Budget(
            max_num_batched_tokens=40, long_prefill_token_threshold=threshold, chunk=32, unit=8, keys_per_row=100
        )
        self.scheduler = Scheduler(slots=slots, pool=pool, budget=budget, caching=caching, decoded=decoded)
        self.rows: dict[int, tuple[int, ...]] = {}
        self.ended: list[Sequence] = []
        self.made = 0

    def submit(self, prompt: int, max_tokens: int, *, priority: int = 0, token: int = 1, n: int = 1) -> Sequence | None:
        """The first sequence of a request; ``None`` where it can never fit."""
        if not self.scheduler.can_ever_fit(prompt + max_tokens):
            return None
        self.made += 1
        made = [
            make_sequence(self.made, prompt, max_tokens=max_tokens, priority=priority, token=token, n=n)
            for _ in range(n)
        ]
        for place, sequence in enumerate(made):
            sequence.leader = made[0] if place else None
            self.scheduler.add(sequence)
        return made[0]

    def step(self, accepted: int) -> Turn:
        self.scheduler.check()
        return self.compute(accepted)

    def compute(self, accepted: int) -> Turn:
        turn = self.scheduler.schedule()
        assert len({id(one) for one in (*turn.decode, *(chunk.sequence for chunk in turn.chunks))}) == len(turn)
        for chunk in turn.chunks:
            self._write(chunk.sequence, chunk.tokens)
            self.scheduler.advance(chunk)
        for sequence in turn.decode:
            self._decode(sequence, accepted)
        return turn

    def end(self, sequence: Sequence, *, sound: bool = True) -> None:
        self.scheduler.remove(sequence, sound=sound)
        self.ended.append(sequence)

    def _decode(self, sequence: Sequence, accepted: int) -> None:
        tokens = [len(sequence.tokens) % 3] * min(accepted, sequence.remaining)
        junk = [99] * (ROWS - len(tokens))
        self._write(sequence, [sequence.tokens[-1], *tokens, *junk][:ROWS])
        for token in tokens:
            sequence.append(token)
        self._read(sequence)
        if not sequence.remaining:
            self.end(sequence)

    def _write(self, sequence: Sequence, tokens: list[int]) -> None:
        self._read(sequence)
        for place, token in enumerate(tokens, start=sequence.cached):
            before = sequence.tokens[: sequence.cached] + tokens[: place - sequence.cached]
            self.rows[self._row(sequence, place)] = (*before, token)

    def _read(self, sequence: Sequence) -> None:
        """Every row that the sequence relies on is still its own."""
        for place in range(sequence.cached):
            assert self.rows[self._row(sequence, place)] == tuple(sequence.tokens[: place + 1])

    @staticmethod
    def _row(sequence: Sequence, place: int) -> int:
        return sequence.blocks[place // BLOCK] * BLOCK + place % BLOCK


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of events, pools down to what one sequence needs. Prompts share prefixes, some grammars are slow."""

    @initialize(slots=st.integers(1, 4), blocks=st.integers(2, 9), caching=st.booleans(), decoded=st.booleans())
    def begin(self, slots: int, blocks: int, caching: bool, decoded: bool) -> None:
        self.bench = Bench(slots=slots, blocks=blocks, caching=caching, decoded=decoded)
        self.submitted = 0

    @property
    def live(self) -> list[Sequence]:
        return list(self.bench.scheduler)

    @rule(
        prompt=st.integers(1, 40),
        max_tokens=st.integers(1, 40),
        priority=st.integers(0, 1),
        token=st.integers(0, 1),
        slow=st.booleans(),
        n=st.sampled_from([1, 1, 2, 4]),
    )
    def submit(self, prompt: int, max_tokens: int, priority: int, token: int, slow: bool, n: int) -> None:
        sequence = self.bench.submit(prompt, max_tokens, priority=priority, token=token, n=n)
        if sequence is None:
            assert prompt + max_tokens + ROWS - 1 > self.bench.scheduler.pool.total * BLOCK
            return
        self.submitted += n
        if slow:
            sequence.pending_grammar = Future[Grammar]()

    @rule(accepted=st.integers(1, ROWS))
    def step(self, accepted: int) -> None:
        turn = self.bench.step(accepted)
        self._never_stalls(turn)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), sound=st.booleans())
    def cancel_fail_or_run_late(self, data: st.DataObject, sound: bool) -> None:
        self.bench.end(data.draw(st.sampled_from(self.live)), sound=sound)

    @precondition(lambda self: any(sequence.blocks for sequence in self.live))
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """Whoever runs, and however many blocks are free."""
        self.bench.scheduler._preempt(data.draw(st.sampled_from([one for one in self.live if one.blocks])))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def finish_a_grammar(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.live)).pending_grammar = None

    @rule()
    def close(self) -> None:
        """All that is live runs to its end, the first of all first, and leaves the pool as it was."""
        for sequence in self.live:
            sequence.pending_grammar = None
        for _ in range(200 * (1 + len(self.live))):
            if not self.live:
                break
            self._never_stalls(self.bench.step(3))
        assert not self.live, "somebody starves"
        assert self.bench.scheduler.pool.held == self.bench.scheduler.slots.used == 0

    @invariant()
    def whole(self) -> None:
        scheduler = self.bench.scheduler
        scheduler.check()
        assert len(self.bench.ended) + len(self.live) == self.submitted, "a request ended twice or not at all"
        assert all(sequence.state is State.DONE for sequence in self.bench.ended)
        assert scheduler.pool.free + scheduler.pool.cached + scheduler.pool.held == scheduler.pool.total

    def _never_stalls(self, turn: Turn) -> None:
        waits_for_grammar = any(sequence.pending_grammar for sequence in self.live)
        assert turn or waits_for_grammar or not self.live
        assert self.bench.scheduler.stalled(turn) is None

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.close()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_illegal_move_raises_and_changes_nothing() -> None:
    sequence = make_sequence(0, 2, max_tokens=4)
    with pytest.raises(RuntimeError, match="QUEUED cannot become DECODING"):
        sequence.move(State.DECODING)
    assert sequence.state is State.QUEUED


def test_the_newest_is_preempted_and_goes_on_where_it_was() -> None:
    bench = Bench(slots=2, blocks=6, caching=False)
    old = bench.submit(8, 32)
    new = bench.submit(8, 32)
    assert old
    assert new
    while not new.stats.preemptions:
        bench.step(2)
    assert (new.state, new.blocks, new.slot, new.cached) == (State.QUEUED, [], None, 0)
    assert new.generated > 0
    kept = list(new.tokens)
    while bench.ended != [old, new]:
        bench.step(2)
    assert new.tokens[: len(kept)] == kept
    assert not old.stats.preemptions


def test_one_that_does_not_fit_is_overtaken_but_not_for_ever() -> None:
    bench = Bench(slots=3, blocks=6)
    first = bench.submit(8, 16)
    big = bench.submit(38, 2)
    assert first
    assert big
    for _ in range(100):
        bench.submit(4, 3)
        bench.step(1)
    assert 0 < big.overtaken <= PATIENCE
    assert big in bench.ended


def test_all_slots_are_used_where_a_sequence_cannot_outgrow_its_block() -> None:
    """A target without blocks: a slot is one block. None is kept back for a growth that cannot be."""
    pool = BlockPool(total=3, block_size=64)
    budget = Budget(128, 64, chunk=32, unit=8, keys_per_row=64)
    scheduler = Scheduler(slots=3, pool=pool, budget=budget)
    for name in range(3):
        scheduler.add(make_sequence(name, 4, max_tokens=50))
    scheduler.schedule()
    assert (scheduler.running, pool.free) == (3, 0)


def test_priority_comes_before_arrival() -> None:
    bench = Bench(slots=1)
    running = bench.submit(4, 2)
    assert running
    bench.step(1)
    late, early = bench.submit(4, 2, priority=5), bench.submit(4, 2, priority=-1)
    while len(bench.ended) < 3:
        bench.step(1)
    assert bench.ended == [running, early, late]


def test_a_long_prompt_leaves_room_for_short_ones_and_for_steps() -> None:
    bench = Bench(slots=3, blocks=60)
    long, short = bench.submit(400, 1), bench.submit(12, 20)
    assert long
    assert short
    bench.step(1)
    assert (long.cached, short.cached) == (8, 8)
    bench.step(1)
    assert (long.cached, short.state) == (16, State.DECODING)
    while short in bench.scheduler:
        assert short in bench.step(1).decode
    assert long.state is State.PREFILLING
    before = long.cached
    bench.step(1)
    assert long.cached == before + 32, "alone, a prompt gets all there is"


def test_beside_others_a_prompt_gets_the_fewer_rows_the_more_keys_they_attend_to() -> None:
    bench = Bench(slots=3, blocks=100, threshold=32)
    stream = bench.submit(1, 200)
    bench.step(1)
    long = bench.submit(400, 1)
    assert stream
    assert long
    sizes = []
    while long.prefill_left:
        before = long.cached
        assert stream in bench.step(1).decode
        sizes.append(long.cached - before)
    assert sizes[:2] == [32, 24]
    assert sizes == sorted(sizes, reverse=True)
    assert 8 in sizes


def test_equal_prefixes_share_blocks_and_need_no_prefill() -> None:
    bench = Bench(slots=2, blocks=10)
    one = bench.submit(25, 12)
    assert one
    while one.state is not State.DECODING:
        bench.step(1)
    other = bench.submit(25, 12)
    assert other
    bench.step(1)
    assert other.blocks[:3] == one.blocks[:3]
    assert (other.state, bench.scheduler.prefix_hit_tokens) == (State.DECODING, 24)
    while len(bench.ended) < 2:
        bench.step(1)


def test_what_a_preempted_one_finds_of_its_own_is_no_hit() -> None:
    bench = Bench(slots=2, blocks=24)
    old, new = bench.submit(80, 40), bench.submit(80, 40, token=2)
    assert old
    assert new
    while bench.ended != [old, new]:
        bench.step(2)
    assert new.stats.preemptions
    assert bench.scheduler.prefix_hit_tokens == 0


def test_what_steps_wrote_is_shared_only_where_that_is_proven() -> None:
    for decoded, hit in ((True, 24), (False, 8)):
        bench = Bench(slots=1, blocks=10, decoded=decoded)
        one = bench.submit(9, 20)
        assert one
        while not bench.ended:
            bench.step(1)
        again = replace(one.request, prompt_ids=tuple(one.tokens[:26]))
        sequence = make_sequence(9, 1, max_tokens=1)
        sequence.request, sequence.tokens = again, list(again.prompt_ids)
        bench.scheduler.add(sequence)
        bench.scheduler.schedule()
        assert sequence.cached == hit, decoded


def test_what_a_failed_request_wrote_is_not_shared() -> None:
    bench = Bench(slots=1, blocks=10)
    bad = bench.submit(9, 20)
    assert bad
    for _ in range(12):
        bench.step(1)
    bench.end(bad, sound=False)
    assert bench.scheduler.pool.cached == 1, "the block of the prompt was sound when it was offered"


def test_a_pool_that_lost_blocks_gives_up_one_request_and_the_others_go_on() -> None:
    """As if a fault of ours leaked blocks, so that the first of all can never go on."""
    bench = Bench(slots=2, blocks=6, caching=False)
    old, new = bench.submit(8, 20), bench.submit(8, 10)
    assert new
    bench.step(1)
    bench.scheduler.pool.allocate(2)
    given_up = []
    while new in bench.scheduler:
        turn = bench.compute(1)
        stalled = bench.scheduler.stalled(turn)
        if stalled is not None:
            given_up.append(stalled)
            bench.end(stalled)
    assert given_up == [old]
    assert bench.ended == [old, new]


def test_who_waits_for_a_grammar_is_not_stalled() -> None:
    bench = Bench(slots=1)
    sequence = bench.submit(4, 4)
    assert sequence
    sequence.pending_grammar = Future[Grammar]()
    bench.step(1)
    turn = bench.step(1)
    assert not turn
    assert bench.scheduler.stalled(turn) is None


@pytest.mark.parametrize("caching", [True, False])
def test_the_answers_to_one_request_wait_for_its_first_and_take_its_blocks(caching: bool) -> None:
    bench = Bench(slots=3, blocks=12, caching=caching)
    first = bench.submit(2 * BLOCK + 4, 8, n=3)
    assert first is not None
    turn = bench.step(1)
    assert turn.sequences == (first,), "the others wait while the prompt is written"
    others = [sequence for sequence in bench.scheduler if sequence is not first]
    turn = bench.step(1)
    assert [chunk.count for chunk in turn.chunks] == [3, 3], "the rest of the prompt's last block"
    assert all(sequence.blocks[:2] == first.blocks[:2] for sequence in others)
    assert bench.scheduler.prefix_hit_tokens == 0, "no other request's prompt"
    assert bench.submit(2 * BLOCK + 4, 8) is not None
    bench.end(others[0])
    bench.step(1)
    assert bench.scheduler.prefix_hit_tokens == (2 * BLOCK if caching else 0)
