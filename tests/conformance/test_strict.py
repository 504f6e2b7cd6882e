"""Strict is valid: every finished call of every model validates against the schema that its caller declared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.cases import Case, alternate, named_of_toolsets, of_bfcl, required_of_toolsets, spread, toolset
from tests.conformance.stack import Stack, adversary, language_model
from tests.conformance.verdict import Tally

FINISHED_SHARE = 0.8
FEW = 0.05  # of the tools that are declared


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Stack]:
    with adversary(tmp_path, max_model_len=4096, max_tokens=256) as stack:
        yield stack


def _check(tally: Tally, cases: list[Case]) -> None:
    assert not tally.violations
    assert len(tally.answers) + tally.unasked == len(cases)
    declared = {(case.source, tool["function"]["name"]) for case in cases for tool in case.tools}
    assert len(tally.refused) <= FEW * len(declared), tally.refused


def _reaches_the_corners(tally: Tally) -> None:
    """The run shows something only where strings hold what is hard to write and to read back."""
    texts = [call.arguments for call in tally.finished]
    for corner in ("\\", "<", "/", "-", "}]"):
        assert any(corner in text for text in texts), f"no finished call holds {corner!r}"
    assert sum(not text.isascii() for text in texts) > len(texts) // 20
    assert any(len(answer.message.tool_calls) > 1 for answer in tally.answers if answer.message)


def test_a_hostile_model_calls_validly(hostile: Stack) -> None:
    cases = spread([*required_of_toolsets(), *named_of_toolsets(neighbours=2)], 16)
    tally = hostile.run(cases)
    _check(tally, cases)
    assert tally.finished_share >= FINISHED_SHARE


def test_a_tool_that_cannot_be_enforced_is_refused_with_its_place(hostile: Stack) -> None:
    odd = {"name": "odd", "parameters": {"properties": {"x": {"type": "array", "contains": {"type": "string"}}}}}
    case = Case("made", "odd", "Go.", (*toolset("git")[:2], {"type": "function", "function": odd}), None, parallel=True)
    tally = hostile.run([case, replace(case, choice="odd"), replace(case, choice="git_status")])
    assert not tally.violations
    assert (len(tally.answers), tally.unasked) == (2, 1)
    assert {refusal.tool for refusal in tally.refusals} == {"odd"}
    assert all("at #/properties/x" in refusal.message for refusal in tally.refusals)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_tool_set_and_bfcl_with_a_hostile_model(hostile: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [*required_of_toolsets(), *named_of_toolsets(), *of_bfcl(100)]
    tally = hostile.run(cases)
    with capsys.disabled():
        sys.stdout.write(f"\n{tally.table('the adversary')}\n")
    _check(tally, cases)
    assert tally.finished_share >= FINISHED_SHARE
    _reaches_the_corners(tally)


@pytest.fixture
def smollm2() -> Iterator[Stack]:
    """The embedded model. Limited for time: answers of 96 tokens; the tests name further limits."""
    with language_model(max_model_len=4096, max_tokens=96) as stack:
        yield stack


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_tool_set_with_smollm2(smollm2: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """A named tool is declared beside one other instead of its set, half of them with parallel calls, half without."""
    cases = [*required_of_toolsets(), *alternate(named_of_toolsets(neighbours=1))]
    tally = smollm2.run(cases)
    with capsys.disabled():
        sys.stdout.write(f"\n{tally.table('SmolLM2-135M, tool sets')}\n")
    _check(tally, cases)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_bfcl_with_smollm2(smollm2: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """Each prompt as required and by name, one of them with parallel calls and one without, in turn."""
    cases = alternate(of_bfcl(100))
    tally = smollm2.run(cases)
    with capsys.disabled():
        sys.stdout.write(f"\n{tally.table('SmolLM2-135M, BFCL')}\n")
    _check(tally, cases)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_smollm2_calls_validly_at_any_temperature(smollm2: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """Its texts are wilder and longer than the greedy ones, so fewer calls are finished."""
    cases = spread([*required_of_toolsets(), *named_of_toolsets(neighbours=1)], 24)
    tally = smollm2.run(cases, temperature=1.5, seed=11, logprobs=True)
    with capsys.disabled():
        sys.stdout.write(f"\n{tally.table('SmolLM2-135M, temperature 1.5')}\n")
    _check(tally, cases)
    assert tally.finished_share >= 0.3
