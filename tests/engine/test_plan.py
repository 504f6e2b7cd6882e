"""The draft walk: legal drafts, the right masks, and a matcher that is as it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.drafts.scripted import Scripted
from heptagram_backend.engines.parts import Parts
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.masks import MaskPool, all_tokens_row, words_for
from heptagram_backend.plan import Draft, Planner
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.targets.scripted import ScriptedTarget
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_factory, tiny_parts
from tests.engine.test_one_answer import SCHEMA

WIDTH = 288
WORDS = words_for(WIDTH)
SPEC = ConstraintSpec("json_schema", SCHEMA)
TEXT = '{"name": "the", "arguments": {"the ": 40, "th": "the tool"}}'


class Bench:
    """A planner whose pool is a numpy array that the test can look into."""

    def __init__(self, *, by_mask: bool) -> None:
        self._by_mask = by_mask
        self.device = np.zeros((64, WORDS), dtype=np.int32)
        self.device[0] = all_tokens_row(EOS + 1, WIDTH)
        pool = MaskPool(rows=64, rows_per_step=8, write=self._write)
        self.planner = Planner(pool=pool, words=WORDS, encode=tiny_encode)
        self.factory = tiny_factory(WIDTH)
        self.parts: Parts = tiny_parts(ScriptedTarget(lambda _: EOS, vocab_size=WIDTH, num_slots=1, max_model_len=256))

    def _write(self, index: int, row: np.ndarray) -> None:  # type: ignore[type-arg]
        self.device[index] = row

    def plan(self, sequence: Running) -> Draft:
        draft = self.planner.draft(sequence)
        return draft if draft.rows else self.planner.mask(sequence, draft)

    def sequence(self, grammar: Grammar, drafts: Sequence[int], *, forced: bool) -> Running:
        request = GenerationRequest((1, 2, 3), OutputSpec("chatml_json"), "tiny", 100)
        sequence = self.parts.make_sequence("0", request, Collector())
        sequence.grammar = grammar
        sequence.drafter = Scripted(lambda tokens, _: list(drafts)[len(tokens) - 3 :])
        sequence.drafter.extend(request.prompt_ids)
        sequence.drafts_forced = forced
        sequence.drafts_by_mask = self._by_mask
        return sequence


class Fickle:
    """A grammar that refuses, behind a mask, what it accepted before: XGrammar was seen to do that."""

    def __init__(self, grammar: Grammar, refused: int) -> None:
        self._grammar, self._refused, self._filled = grammar, refused, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._grammar, name)

    def fill(self, row: np.ndarray) -> bool:  # type: ignore[type-arg]
        self._filled = True
        return self._grammar.fill(row)

    def accept(self, token: int) -> bool:
        return not (self._filled and token == self._refused) and self._grammar.accept(token)


@pytest.mark.parametrize(("refused", "left"), [(0, 0), (1, 0), (3, 2)])
def test_a_draft_that_is_refused_behind_its_mask_is_cut_and_ends_nothing(refused: int, left: int) -> None:
    bench = Bench(by_mask=False)
    drafts = list(b'{"name')
    fickle = Fickle(bench.factory.matcher(SPEC), drafts[refused])
    draft = bench.plan(bench.sequence(fickle, drafts, forced=False))  # type: ignore[arg-type]
    assert draft.tokens == tuple(drafts[:left])
    assert len(draft.rows) == left + 1
    fickle._filled = False
    assert all(map(fickle.accept, drafts))  # the matcher is where it was


@pytest.fixture(scope="module", params=[False, True], ids=["masks later", "by mask"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(by_mask=request.param)


def _mask(grammar: Grammar) -> bytes:
    row = np.zeros(WORDS, dtype=np.int32)
    return row.tobytes() if grammar.fill(row) else b""


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, len(tiny_encode(TEXT)) - 1),
    drafts=st.lists(st.integers(0, WIDTH - 1), max_size=7),
    right=st.integers(0, 7),
    forced=st.booleans(),
)
def test_the_walk_drafts_legal_tokens_and_leaves_the_matcher_as_it_was(
    bench: Bench, place: int, drafts: list[int], right: int, forced: bool
) -> None:
    tokens = tiny_encode(TEXT)
    grammar = bench.factory.matcher(SPEC)
    assert all(grammar.accept(token) for token in tokens[:place])
    before = _mask(grammar)
    proposal = [*tokens[place : place + right], *drafts]
    draft = bench.plan(bench.sequence(grammar, proposal, forced=forced))
    assert _mask(grammar) == before, "planning moved the matcher"
    _check_draft(bench, grammar, draft)
    assert EOS not in draft.tokens
    assert forced or not any(origin.is_forced for origin in draft.origins)
    grammar.close()


def _check_draft(bench: Bench, grammar: Grammar, draft: Draft) -> None:
    """Replay the drafts: each is legal, and each planned row is the matcher's own mask at its place."""
    assert len(draft.rows) == len(draft.tokens) + 1 <= 8
    for place, row in enumerate(draft.rows):
        assert _mask(grammar) == bench.device[row].tobytes()
        if place < len(draft.tokens):
            assert grammar.accept(draft.tokens[place])


def test_forced_text_is_drafted_in_canonical_tokens(bench: Bench) -> None:
    grammar = bench.factory.matcher(SPEC)
    draft = bench.plan(bench.sequence(grammar, [], forced=True))
    assert list(draft.tokens) == tiny_encode('{"name": "')
    assert all(origin.is_forced for origin in draft.origins)
    grammar.close()


def test_an_illegal_proposal_gives_way_to_forced_text(bench: Bench) -> None:
    grammar = bench.factory.matcher(SPEC)
    draft = bench.plan(bench.sequence(grammar, [0] * 7, forced=True))
    assert list(draft.tokens) == tiny_encode('{"name": "')
    grammar.close()


def test_a_draft_that_leads_nowhere_is_taken_back(bench: Bench) -> None:
    """Behind `b` the grammar is dead. The draft must not fail the request: the target may well choose `a`."""
    grammar = bench.factory.matcher(ConstraintSpec("regex", "x[ab]*"))

    class DeadBehindB:
        """The matcher, but for an empty mask behind `b`."""

        def __init__(self) -> None:
            self.seen: list[int] = []

        def __getattr__(self, name: str) -> object:
            return getattr(grammar, name)

        def accept(self, token: int) -> bool:
            self.seen.append(token)
            return grammar.accept(token)

        def rollback(self, count: int) -> None:
            del self.seen[len(self.seen) - count :]
            grammar.rollback(count)

        def fill(self, row: np.ndarray) -> bool:  # type: ignore[type-arg]
            if self.seen[-1:] == [ord("b")]:
                row[:] = 0
                return True
            return grammar.fill(row)

    before = _mask(grammar)
    draft = bench.plan(bench.sequence(DeadBehindB(), [ord(c) for c in "xaabaa"], forced=False))  # type: ignore[arg-type]
    assert draft.tokens == tuple(b"xaa")
    assert len(draft.rows) == 4
    assert _mask(grammar) == before
    grammar.close()
