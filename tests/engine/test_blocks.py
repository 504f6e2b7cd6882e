"""The block pool: every block is in one place, what is found has the content that was asked for, runs stay together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heptagram_backend.blocks import BlockPool, extend_keys


def keys(*tokens: int) -> list[bytes]:
    """Keys of the whole blocks, of two tokens each, that ``tokens`` fill."""
    made: list[bytes] = []
    extend_keys(made, tokens, block_size=2, count=len(tokens) // 2)
    return made


class PoolMachine(RuleBasedStateMachine):
    """Sequences over two-token prefixes: some find blocks, all take new ones, publish them and let go."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(total=9, block_size=2)
        self.held: list[list[int]] = []
        self.content: dict[int, bytes] = {}

    @rule(tokens=st.lists(st.integers(0, 1), max_size=8), extra=st.integers(1, 3))
    def begin(self, tokens: list[int], extra: int) -> None:
        wanted = keys(*tokens)
        found = self.pool.match(wanted)
        assert [self.content[block] for block in found] == wanted[: len(found)]
        new = len(wanted) - len(found) + extra
        if not self.pool.can_allocate(new, beside=found):
            return
        self.pool.hold(found)
        blocks = found + self.pool.allocate(new, after=found[-1] if found else None)
        assert len(set(blocks)) == len(wanted) + extra
        for block, key in zip(blocks[len(found) :], wanted[len(found) :], strict=False):
            self.content[block] = key
            self.pool.publish(block, key)
        self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        blocks = data.draw(st.sampled_from(self.held))
        if self.pool.can_allocate(1):
            blocks += self.pool.allocate(1, after=blocks[-1])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        blocks = data.draw(st.sampled_from(self.held))
        self.held.remove(blocks)
        self.pool.release(blocks)

    @invariant()
    def whole(self) -> None:
        self.pool.check()
        assert self.pool.held == len({block for blocks in self.held for block in blocks})


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_a_key_names_a_block_with_all_that_stands_before_it(one: list[int], other: list[int]) -> None:
    for place, (left, right) in enumerate(zip(keys(*one), keys(*other), strict=False)):
        assert (left == right) == (one[: 2 * place + 2] == other[: 2 * place + 2])


def test_keys_go_on_where_they_ended() -> None:
    made = keys(1, 2, 3, 4)
    extend_keys(made, [1, 2, 3, 4, 5, 6], block_size=2, count=3)
    assert made == keys(1, 2, 3, 4, 5, 6)


def test_sequences_grow_in_runs_beside_each_other() -> None:
    pool = BlockPool(total=64, block_size=32)
    blocks = [pool.allocate(2) for _ in range(4)]
    for _ in range(10):
        for mine in blocks:
            mine += pool.allocate(1, after=mine[-1])
    assert all(mine == list(range(mine[0], mine[0] + 12)) for mine in blocks)


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_beginning() -> None:
    pool = BlockPool(total=20, block_size=2)
    first, second = keys(1, 2, 3, 4), keys(5, 6, 7, 8)
    for wanted in (first, second):
        blocks = pool.allocate(2)
        for block, key in zip(blocks, wanted, strict=True):
            pool.publish(block, key)
        pool.release(blocks)
    rest = pool.allocate(16)
    pool.hold(pool.match(first))
    assert not pool.can_allocate(3)
    pool.allocate(1, after=rest[-1])
    assert (len(pool.match(first)), len(pool.match(second))) == (2, 0)
    pool.check()


def test_more_than_there_is_is_refused_and_changes_nothing() -> None:
    pool = BlockPool(total=3, block_size=2)
    pool.allocate(2)
    with pytest.raises(RuntimeError, match="2 blocks wanted, 1 available"):
        pool.allocate(2)
    assert (pool.free, pool.held) == (1, 2)
    pool.check()
