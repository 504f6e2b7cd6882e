"""How many drafts a step verifies: the best choice there is, learnt from what was seen and from nothing else."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_backend.acceptance import Rates, survivals, trials
from heptagram_backend.drafts.base import FORCED, Origin
from heptagram_backend.step_cost import StepCost, rounded
from heptagram_backend.widths import choose

chances = st.lists(st.floats(0, 1), max_size=7).map(lambda found: list(itertools.accumulate(found, lambda a, b: a * b)))
steps = st.lists(chances, min_size=1, max_size=3)
many = st.lists(chances, min_size=1, max_size=20)
costs = st.fixed_dictionaries({rows: st.floats(0.1, 10) for rows in (8, 16, 24)})


def _tokens(step: Sequence[Sequence[float]], widths: Sequence[int]) -> float:
    return len(step) + sum(sum(found[:width]) for found, width in zip(step, widths, strict=True))


def _rows(widths: Sequence[int]) -> int:
    return rounded(len(widths) + sum(widths))


@given(steps, costs, st.data())
def test_it_is_the_best_of_all_choices(step: list[list[float]], cost: dict[int, float], data: st.DataObject) -> None:
    """Whatever the costs are: they need not even rise."""
    least = [data.draw(st.sampled_from([0, len(found)])) for found in step]
    choices = itertools.product(*(range(low, len(found) + 1) for low, found in zip(least, step, strict=True)))
    best = max(_tokens(step, widths) / cost[_rows(widths)] for widths in choices)
    widths = choose(step, cost.__getitem__, least=least)
    assert _tokens(step, widths) / cost[_rows(widths)] == pytest.approx(best)


@given(many, st.floats(0, 2), st.data())
def test_it_stays_within_the_drafts_and_leaves_no_free_row(
    step: list[list[float]], slope: float, data: st.DataObject
) -> None:
    least = [data.draw(st.integers(0, len(found))) for found in step]
    widths = choose(step, lambda rows: 1 + slope * rows, least=least)
    assert all(low <= width <= len(found) for low, width, found in zip(least, widths, step, strict=True))
    assert widths == choose(step, lambda rows: 1 + slope * rows, least=least)
    full = sum(len(found) for found in step)
    assert sum(widths) == full or (len(step) + sum(widths)) % 8 == 0
    if len(step) + full <= 8:
        assert sum(widths) == full, "rows up to the eighth cost nothing"


@given(many, st.floats(0, 1), st.floats(0, 1))
def test_dearer_rows_never_widen_a_step(step: list[list[float]], slope: float, more: float) -> None:
    cheap, dear = (choose(step, lambda rows, s=price: 1 + s * rows) for price in (slope, slope + more))  # type: ignore[misc]
    assert all(narrow <= wide for narrow, wide in zip(dear, cheap, strict=True))


def test_the_more_streams_there_are_the_fewer_unlikely_drafts_are_verified() -> None:
    """Rows that cost as on a CPU; a third of the drafts is right."""
    unlikely = [0.33**place for place in range(1, 8)]
    likely = [0.97**place for place in range(1, 8)]
    cost = StepCost("cpu")

    def verified(*step: list[float]) -> list[int]:
        return choose(step, lambda rows: cost.seconds(rows, len(step)))

    assert verified(unlikely) == [7], "alone, rows are free"
    streams = [sum(verified(*[unlikely] * count)) / count for count in (1, 2, 4, 8, 16)]
    assert streams == sorted(streams, reverse=True)
    assert streams[-1] <= 1
    assert verified(*[unlikely] * 8, *[likely] * 8)[8:] == [7] * 8, "what is likely is worth its rows in any company"


def test_a_rate_goes_from_its_prior_to_what_is_seen_and_back() -> None:
    rates, key = Rates(memory=8), ("x", False, 0)
    assert rates.rate(key, 0.7) == pytest.approx(0.7)
    seen = []
    for _ in range(40):
        rates.observe([(key, False)])
        seen.append(rates.rate(key, 0.7))
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 0.15
    for _ in range(80):
        rates.observe([])  # steps in which it was not tried
    assert rates.rate(key, 0.7) == pytest.approx(0.7, abs=0.01), "what was cut for long gets another chance"


@given(st.integers(0, 7), st.integers(0, 7))
def test_nothing_is_learnt_behind_the_first_rejection(drafted: int, accepted: int) -> None:
    accepted = min(accepted, drafted)
    found = trials([Origin("x")] * drafted, accepted, constrained=True)
    assert [place for (_, _, place), _ in found] == list(range(min(accepted + 1, drafted)))
    assert [right for _, right in found] == [True] * accepted + [False] * (len(found) - accepted)


def test_survival_is_learnt_by_request_and_by_source() -> None:
    everyone, lucky, unlucky = Rates(memory=512), Rates(memory=16), Rates(memory=16)
    drafts = [Origin("prompt_lookup/2")] * 3

    def of(own: Rates, origins: Sequence[Origin] = drafts) -> list[float]:
        return survivals(origins, constrained=False, own=own, everyone=everyone)

    for _ in range(10):
        for own, accepted in ((lucky, 3), (unlucky, 0)):
            shown = trials(drafts, accepted, constrained=False)
            own.observe(shown)
            everyone.observe(shown)
    assert of(unlucky)[0] < 0.2 < of(Rates(memory=16))[0] < 0.8 < of(lucky)[0]
    assert of(unlucky, [Origin(FORCED)]) == of(lucky, [Origin(FORCED)]), "another source has shown nothing"
    assert of(lucky) == sorted(of(lucky), reverse=True)


def test_a_drafters_own_confidence_counts_and_is_corrected_by_what_happens() -> None:
    everyone, own = Rates(memory=512), Rates(memory=16)
    sure, unsure = [Origin("dspark", 0.95)], [Origin("dspark", 0.15)]

    def of(origins: Sequence[Origin]) -> float:
        return survivals(origins, constrained=True, own=own, everyone=everyone)[0]

    assert of(sure) == pytest.approx(0.95)
    assert of(unsure) == pytest.approx(0.15)
    for _ in range(20):
        own.observe(trials(sure, 0, constrained=True))
    assert of(sure) < 0.3, "it was never right"
    assert of(unsure) == pytest.approx(0.15)


def test_the_cost_of_rows_and_sequences_is_learnt_from_steps() -> None:
    """From steps of many sizes, one in ten of which another process has made three times as long."""

    def true(rows: int, sequences: int) -> float:
        return 0.02 + 0.004 * rounded(rows) / 8 + 0.001 * sequences

    noise, cost = random.Random(5), StepCost("cpu")
    for _ in range(300):
        sequences = noise.randint(1, 16)
        rows = noise.randint(sequences, 8 * sequences)
        cost.observe(rows, sequences, true(rows, sequences) * noise.uniform(0.95, 1.05) * noise.choice([1] * 9 + [3]))
    for rows, sequences in ((8, 1), (32, 16), (64, 8), (128, 16)):
        assert cost.seconds(rows, sequences) == pytest.approx(true(rows, sequences), rel=0.3)
    assert cost.seconds(64, 8) / cost.seconds(16, 8) == pytest.approx(true(64, 8) / true(16, 8), rel=0.2)


@given(st.lists(st.tuples(st.integers(1, 16), st.integers(0, 7), st.floats(1e-5, 10)), max_size=30))
def test_whatever_was_seen_more_rows_cost_no_less(seen: list[tuple[int, int, float]]) -> None:
    cost = StepCost("cuda")
    for sequences, drafts, seconds in seen:
        cost.observe(sequences * (1 + drafts), sequences, seconds)
    found = [cost.seconds(rows, 8) for rows in range(8, 65)]
    assert found == sorted(found)
    assert found[0] > 0
