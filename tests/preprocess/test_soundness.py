"""Never fail open: what the grammar of an admitted schema lets through is valid for the caller's own schema."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import Unenforced, checkable, walk, walk_parameters
from heptagram_backend.schema.formats import FORMATS
from heptagram_backend.schema.keywords import KNOWN
from heptagram_backend.validate import InvalidOutputError, OutputValidator
from tests.preprocess.oracle import Oracle, strict_loads, valid
from tests.preprocess.schemas import VALUES, schemas
from tests.preprocess.suite import groups, kind_of, needs_suite, why_not_generated

_ORACLE = Oracle()
_TOOL_SETS = Path(__file__).resolve().parents[1] / "data" / "toolsets"


def _check_samples(schema: Any, walked: Any, seed: int, count: int) -> int:
    """Random walks: each text is valid, and the check of finished values says so too."""
    chance = random.Random(seed)
    finished = 0
    checker = OutputValidator({}, checkable(schema))
    for _ in range(count):
        text = _ORACLE.sample(walked, chance)
        if text is not None and _without_doubles(text):
            finished += 1
            assert valid(schema, strict_loads(text)), (schema, walked, text)
            checker.check_text(text)
    return finished


def _without_doubles(text: str) -> bool:
    """Free keys may repeat in the text; a finished value in which one does is refused as a whole."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        doubles.append(len(dict(found)) != len(found))
        return {}

    doubles: list[bool] = []
    json.loads(text, object_pairs_hook=pairs)
    return not any(doubles)


def _passes(checker: OutputValidator, text: str) -> bool:
    try:
        checker.check_text(text)
    except InvalidOutputError:
        return False
    return True


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(VALUES, max_size=6), st.integers(0, 2**32))
def test_arbitrary_schemas(schema: Any, values: list[Any], seed: int) -> None:
    try:
        walked = walk(schema, "p")
    except RequestError:
        return
    assert walk(schema, "p", unenforced="validate") == walked
    for value in values:
        if _ORACLE.accepts(walked, value):
            assert valid(schema, value), (schema, walked, value)
    _check_samples(schema, walked, seed, 2)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(VALUES, max_size=6), st.integers(0, 2**32))
def test_what_is_left_to_the_check_is_found_by_it(schema: Any, values: list[Any], seed: int) -> None:
    """With ``validate`` the grammar may admit more than the schema, but nothing invalid comes through both."""
    try:
        walked = walk(schema, "p", unenforced="validate")
    except RequestError:
        return
    checker = OutputValidator({}, checkable(schema))
    texts = [json.dumps(value) for value in values if _ORACLE.accepts(walked, value)]
    sampled = _ORACLE.sample(walked, random.Random(seed))
    for text in [*texts, *([] if sampled is None else [sampled])]:
        if _passes(checker, text):
            assert valid(schema, strict_loads(text)), (schema, walked, text)


@pytest.mark.full
@settings(max_examples=8_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(VALUES, max_size=6), st.integers(0, 2**32))
@pytest.mark.timeout(3_600)
def test_arbitrary_schemas_at_length(schema: Any, values: list[Any], seed: int) -> None:
    test_arbitrary_schemas.hypothesis.inner_test(schema, values, seed)  # type: ignore[attr-defined]
    test_what_is_left_to_the_check_is_found_by_it.hypothesis.inner_test(schema, values, seed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_validate(name: str) -> None:
    schema = {"type": "string", "format": name}
    assert _check_samples(schema, walk(schema, "p"), 7, 30)


@pytest.mark.parametrize("path", sorted(_TOOL_SETS.glob("*.json")), ids=lambda path: path.stem)
def test_tool_sets_are_admitted_and_sound(path: Path) -> None:
    for tool in json.loads(path.read_text()):
        schema = tool["function"]["parameters"]
        _check_samples(schema, walk_parameters(schema, "p"), 1, 3)


@needs_suite
@pytest.mark.parametrize("mode", ["refuse", "validate"])
def test_json_schema_test_suite(mode: Unenforced, capsys: pytest.CaptureFixture[str]) -> None:
    """Of admitted groups nothing comes through that the suite calls invalid, and what valid value does not is known."""
    admitted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    wrong: list[Any] = []
    for file, group in groups():
        schema = group["schema"]
        try:
            walked = walk(schema, "p", unenforced=mode)
        except RequestError as error:
            refused[_keyword(error)] += 1
            continue
        admitted[kind_of(schema, walked)] += 1
        checker = OutputValidator({}, checkable(schema))
        for case in group["tests"]:
            value = case["data"]
            accepted = _ORACLE.accepts(walked, value)
            verdict = _verdict(walked, schema, value, accepted=accepted, valid=case["valid"])
            if accepted and not case["valid"]:
                verdict = "invalid, found by the check" if mode == "validate" else "invalid, accepted"
                if mode == "refuse" or _passes(checker, json.dumps(value)):
                    wrong.append((file, group["description"], value))
            cases[verdict] += 1
    with capsys.disabled():
        sys.stdout.write(
            f"\nJSON-Schema-Test-Suite, {mode}: {admitted.total()} groups admitted, {refused.total()} refused\n"
        )
        for title, counts in (("admitted", admitted), ("refused for", refused), ("instances", cases)):
            rows = (f"  {count:5} {name}\n" for name, count in counts.most_common())
            sys.stdout.write(f" {title}\n{''.join(rows)}")
    assert not wrong
    assert not cases["valid, not generated: unknown"]
    assert admitted.total() >= {"refuse": 267, "validate": 354}[mode]


def _verdict(walked: Any, schema: Any, value: Any, *, accepted: bool, valid: bool) -> str:
    if accepted or not valid:
        return f"{'valid' if valid else 'invalid'}, {'generated' if accepted else 'not generated'}"
    return f"valid, not generated: {why_not_generated(_ORACLE, schema, walked, value)}"


def _keyword(error: RequestError) -> str:
    """What a refusal is about: the last keyword of its place, or the fault of the whole."""
    message = str(error)
    if "no value satisfies" in message:
        return "nothing satisfies it"
    keys = message.removeprefix("at #").partition(": ")[0].split("/")
    return next(
        (key for key in reversed(keys) if key in KNOWN or key.startswith("$") or key == "dependencies"), "other"
    )
