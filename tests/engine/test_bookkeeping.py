"""Prompt lookup, the mask pool and the scheduler: no torch, microseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.drafts.base import NoDrafts
from heptagram_backend.drafts.prompt_lookup import PromptLookup
from heptagram_backend.emit import Emitter
from heptagram_backend.formats import load_format
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.masks import ALL_TOKENS, MaskPool, all_tokens_row
from heptagram_backend.scheduler import Scheduler
from heptagram_backend.sequence import Sequence, State
from heptagram_backend.validate import OutputValidator
from tests.engine.harness import Collector

TOKENS = st.lists(st.integers(0, 3), max_size=30)


@given(TOKENS, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 7))
def test_lookup_proposes_what_followed_the_longest_latest_match(
    tokens: list[int], ahead: list[int], limit: int
) -> None:
    lookup = PromptLookup()
    lookup.extend(tokens)
    context = tokens + ahead
    expected: list[int] = []
    for size in range(min(3, len(context)), 0, -1):
        places = [at for at in range(len(tokens) - size) if tokens[at : at + size] == context[-size:]]
        if places:
            expected = tokens[places[-1] + size :][:limit]
            break
    assert list(lookup.propose(ahead, limit)) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_the_pool_finds_rows_again_and_never_overwrites_one_of_the_step(contents: list[int]) -> None:
    device = np.zeros((10, 2), dtype=np.int32)

    def upload(index: int, row: NDArray[np.int32]) -> None:
        device[index] = row

    ones = all_tokens_row(40, 64)
    pool = MaskPool(rows=10, rows_per_step=8, all_tokens=ones, upload=upload)
    for begin in range(0, len(contents), 8):
        step = [np.array([value, ~value], dtype=np.int32) for value in contents[begin : begin + 8]]
        places = [pool.place(row)[0] for row in step]
        assert all(place != ALL_TOKENS for place in places)
        for place, row in zip(places, step, strict=True):
            assert (device[place] == row).all()
        assert all(pool.place(row)[1] == 0 for row in step), "a row of this step was uploaded twice"
    assert (device[ALL_TOKENS] == ones).all()


def test_row_zero_allows_the_real_tokens_only() -> None:
    row = all_tokens_row(40, 70)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert row.shape == (3,)
    assert bits[:40].all()
    assert not bits[40:].any()


def _sequence(name: int) -> Sequence:
    output = OutputSpec("chatml_json")
    emitter = Emitter(
        detokenizer=Detokenizer([]), parser=load_format("chatml_json").parser(output), validator=OutputValidator({})
    )
    request = GenerationRequest((1, 2), output, "model", 4)
    return Sequence(str(name), request, Collector(), NoDrafts(), emitter, frozenset())


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of submit, admit, prefill and end keeps every slot owned exactly once, and the queue fair."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(slots=3)
        self.made = 0
        self.order: list[Sequence] = []

    @rule()
    def submit(self) -> None:
        sequence = _sequence(self.made)
        self.made += 1
        self.scheduler.add(sequence)
        self.order.append(sequence)

    @rule()
    def admit(self) -> None:
        for sequence in self.scheduler.admit():
            assert sequence is self.order.pop(0), "a younger request overtook an older one"

    @rule()
    def prefill(self) -> None:
        sequence = self.scheduler.next_prefill()
        if sequence is not None:
            sequence.move(State.DECODING)

    @precondition(lambda self: self.made > 0)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        live = list(self.scheduler)
        if live:
            sequence = data.draw(st.sampled_from(live))
            self.scheduler.remove(sequence)
            if sequence in self.order:
                self.order.remove(sequence)
            assert sequence.slot is None
            assert sequence.state is State.DONE

    @invariant()
    def whole(self) -> None:
        self.scheduler.check()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_an_illegal_move_raises_and_changes_nothing() -> None:
    sequence = _sequence(0)
    try:
        sequence.move(State.DECODING)
    except RuntimeError:
        assert sequence.state is State.QUEUED
    else:
        raise AssertionError("a queued sequence began to decode without a slot")
