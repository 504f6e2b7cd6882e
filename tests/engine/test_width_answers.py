"""Widths change no token: greedy and sampled, constrained and free, preempted or not; and what they cut is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.drafts.base import Origin
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Parts, assemble
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec, SamplingParams
from heptagram_backend.plan import Draft
from heptagram_backend.release import EngineOptions
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.step_cost import StepCost
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_backend.widths import AutoWidth, FullWidth, Widths
from tests.engine.harness import EOS, Collector, Result, drive, tiny_checkpoint, tiny_parts
from tests.engine.test_one_answer import _adversary, _requests


class DearRows(StepCost):
    """Every eight rows cost half of what a step costs without them, whatever is measured."""

    def seconds(self, rows: int, sequences: int) -> float:
        del sequences
        return 2.0 + -(-rows // 8)

    def observe(self, rows: int, sequences: int, seconds: float) -> None:
        """Times of a test machine decide nothing."""


class RandomWidth(FullWidth):
    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(3)

    def narrowed(self, drafted: Sequence[tuple[Running, Draft]], *, beside: int) -> list[Draft]:
        del beside
        return [draft.narrowed(self._random.randint(0, len(draft.tokens))) for _, draft in drafted]


def auto(*, probabilistic: bool = False) -> AutoWidth:
    return AutoWidth(FullWidth(), DearRows(), probabilistic=probabilistic)


WIDTHS: dict[str, Callable[[], Widths]] = {"full": FullWidth, "auto": auto, "random": RandomWidth}


def requests(drafts: DraftSource) -> list[GenerationRequest]:
    """As of the grid of one answer, every third one sampled."""
    made = [replace(request, drafts=drafts, max_tokens=request.max_tokens + 16) for request in _requests()]
    return [
        replace(one, sampling=SamplingParams(temperature=0.9, seed=place)) if place % 3 == 2 else one
        for place, one in enumerate(made)
    ]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def plain(checkpoint: Path) -> list[Result]:
    """Each alone, without drafts."""
    parts = tiny_parts(TransformersTarget(checkpoint, dtype="float32", num_slots=8, max_model_len=640))
    results = [drive(parts, [request])[0] for request in requests("none")]
    parts.grammars.close()
    return results


@pytest.fixture(params=WIDTHS)
def widths(request: pytest.FixtureRequest) -> Widths:
    return WIDTHS[request.param]()


@pytest.fixture
def parts(checkpoint: Path, widths: Widths) -> Iterator[Parts]:
    target = TransformersTarget(checkpoint, dtype="float32", num_slots=8, max_model_len=640)
    made = tiny_parts(target, scripts={"scripted": _adversary}, widths=widths)
    yield made
    made.grammars.close()


@pytest.mark.parametrize("drafts", ["auto", "scripted"])
def test_no_width_changes_a_token(parts: Parts, plain: list[Result], drafts: DraftSource) -> None:
    for size in (1, 3, 8):
        for first in range(0, 8, size):
            chosen = [(first + step) % 8 for step in range(size)]
            assert drive(parts, [requests(drafts)[place] for place in chosen]) == [plain[place] for place in chosen]


def test_nor_do_widths_and_preemption(checkpoint: Path, widths: Widths, plain: list[Result]) -> None:
    scarce = TransformersTarget(checkpoint, dtype="float32", num_slots=8, max_model_len=128, block_size=8, blocks=20)
    engine = assemble(
        tiny_parts(scarce, scripts={"scripted": _adversary}, widths=widths), EngineLimits("1", 64, 60_000, "tiny")
    )
    sinks = [Collector() for _ in plain]
    for place, sink in enumerate(sinks):
        drafts: DraftSource = "auto" if place % 2 else "scripted"
        engine.submit(replace(requests(drafts)[place], return_token_ids=True), sink)
    assert all(sink.done.wait(60) for sink in sinks)
    assert [tuple(sink.token_ids) for sink in sinks] == [result.tokens for result in plain]
    assert engine.snapshot().preemptions > 0
    engine.close()


# --- a scripted target counts up, as far as it is right to ---

OUTPUT = OutputSpec("chatml_json")


def _scripted(*, until: int, widths: Widths | None, script: Sequence[int] = ()) -> Parts:
    """A target that says the number of the place it stands at, but 200 from the place ``until`` on."""
    target = ScriptedTarget(
        lambda tokens: len(tokens) if len(tokens) < until else 200, vocab_size=288, num_slots=8, max_model_len=128
    )
    return tiny_parts(
        target,
        scripts={"scripted": lambda tokens, limit: [*range(len(tokens), len(tokens) + limit)], "wrong": _wrong},
        options=EngineOptions(mask_pool_rows=128, rejection_sample_method="probabilistic"),
        widths=widths,
    )


def _wrong(tokens: Sequence[int], limit: int) -> list[int]:
    return [250] * limit


class Recorded(AutoWidth):
    def __init__(self) -> None:
        super().__init__(FullWidth(), DearRows(), probabilistic=True)
        self.steps: list[list[tuple[str, int]]] = []

    def narrowed(self, drafted: Sequence[tuple[Running, Draft]], *, beside: int) -> list[Draft]:
        drafts = super().narrowed(drafted, beside=beside)
        self.steps.append([(one.id, len(draft.tokens)) for (one, _), draft in zip(drafted, drafts, strict=True)])
        return drafts


def _batch(drafts: Sequence[DraftSource], **changes: Any) -> list[GenerationRequest]:
    base = GenerationRequest((1, 2, 3), OUTPUT, "tiny", 60, ignore_eos=True)
    return [replace(base, drafts=name, **changes) for name in drafts]


def test_widths_look_at_nothing_that_is_sampled_later() -> None:
    """Two models that part at some place: up to the step that draws the first other token their widths are the same."""
    seen: list[list[list[tuple[str, int]]]] = []
    for until in (40, 128):
        widths = Recorded()
        parts = _scripted(until=until, widths=widths)
        results = drive(parts, _batch(["scripted", "wrong", "wrong"]))
        assert all(result.tokens[:37] == (*range(3, 40),) for result in results)
        seen.append(widths.steps)
        parts.grammars.close()
    same = [first == second for first, second in zip(*seen, strict=False)]
    parted = same.index(False)
    assert parted > 4


def test_wrong_drafts_give_way_to_right_ones() -> None:
    widths = Recorded()
    parts = _scripted(until=128, widths=widths)
    drive(parts, _batch(["scripted", "wrong"] * 4))
    together = [dict(step) for step in widths.steps if len(step) == 8][4:]
    assert len(together) > 3
    right, wrong = ([step[f"{place + off}"] for step in together for place in (0, 2, 4, 6)] for off in (0, 1))
    assert min(right) >= 3
    assert sum(right) > 10 * sum(wrong)
    parts.grammars.close()


def test_drafts_that_are_accepted_by_chance_are_never_cut() -> None:
    """Or a seed's answer would change with what runs beside it."""
    widths = Recorded()
    parts = _scripted(until=128, widths=widths)
    drive(parts, _batch(["wrong"] * 8, sampling=SamplingParams(temperature=0.5, seed=1)))
    assert all(width == 7 for step in widths.steps[:20] for _, width in step)
    drive(parts, _batch(["wrong"] * 8))
    assert any(width < 7 for step in widths.steps for _, width in step)
    parts.grammars.close()


def test_a_block_ends_before_the_first_draft_below_the_threshold() -> None:
    parts = _scripted(until=128, widths=None)
    sequence = parts.make_sequence("0", _batch(["scripted"])[0], Collector())
    tokens, chances = (5, 6, 7, 8), (0.9, 0.5, 0.8, None)
    draft = Draft(tokens, tuple(Origin("dspark", chance) for chance in chances))
    for threshold, left in ((0.0, 4), (0.5, 4), (0.6, 1), (0.95, 0)):
        [found] = FullWidth(threshold).narrowed([(sequence, draft)], beside=0)
        assert (found.tokens, found.cut_by_width) == (tokens[:left], 4 - left)
    parts.grammars.close()


def test_what_became_of_drafts_is_told() -> None:
    """By request and for the engine: wrong drafts beside right ones, and what is not verified was cut."""
    engine = assemble(_scripted(until=128, widths=auto()), EngineLimits("1", 64, 60_000, "tiny"))
    names: list[DraftSource] = ["scripted", "wrong"] * 4
    sinks = [Collector() for _ in names]
    for request, sink in zip(_batch(names), sinks, strict=True):
        engine.submit(request, sink)
    assert all(sink.done.wait(60) for sink in sinks)
    found = [sink.finish.stats for sink in sinks]
    for stats in found[1::2]:
        wanted = sum(min(7, 59 - step) for step in range(60))
        assert stats.speculative_decoding.num_draft_tokens + stats.cut_by_width == wanted
        assert stats.cut_by_width > wanted / 2
        assert stats.speculative_decoding.num_accepted_tokens_per_pos == (0,) * 7
    right = [stats.speculative_decoding.num_accepted_tokens_per_pos for stats in found[::2]]
    assert min(map(sum, right)) > 30
    seen = engine.snapshot()
    assert seen.accepted_by_place == {str(place): sum(each) for place, each in enumerate(zip(*right, strict=True))}
    assert seen.accepted_draft_tokens == sum(seen.accepted_by_place.values())
    assert seen.cut_tokens == {"width": sum(stats.cut_by_width for stats in found), "grammar": 0}
    assert seen.draft_tokens == sum(stats.speculative_decoding.num_draft_tokens for stats in found)
    engine.close()


def test_what_the_grammar_does_to_drafts_is_told() -> None:
    """Illegal drafts where the grammar forces text are replaced by it, and end the draft where it does not."""
    constrained = _requests()[1]
    target = ScriptedTarget(lambda _: EOS, vocab_size=288, num_slots=1, max_model_len=256)
    parts = tiny_parts(target, scripts={"illegal": lambda tokens, limit: [0] * limit}, widths=FullWidth())
    sequence = parts.make_sequence("0", replace(constrained, drafts="illegal"), Collector())
    sequence.grammar = parts.grammars.start(constrained.constraint).result()  # type: ignore[arg-type]
    draft = parts.step._planner.draft(sequence)
    assert (draft.tokens, draft.replaced, draft.cut_by_grammar) == ((), 0, 7)
    sequence.drafts_forced = True
    draft = parts.step._planner.draft(sequence)
    assert len(draft.tokens) > 1
    assert draft.replaced == 1, "the forced text's last token stands where the drafter was refused"
    sequence.release_grammar()
    parts.grammars.close()
