"""Never fail open: what the grammar of an admitted schema lets through is valid for the caller's own schema."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import walk, walk_parameters
from heptagram_backend.schema.formats import FORMATS
from tests.preprocess.oracle import Oracle, strict_loads, valid
from tests.preprocess.schemas import VALUES, schemas

_ORACLE = Oracle()
_TOOL_SETS = Path(__file__).resolve().parents[1] / "data" / "toolsets"
_SUITE = "json-schema-test-suite/tests/draft2020-12"


def _check_samples(schema: Any, walked: Any, seed: int, count: int) -> int:
    chance = random.Random(seed)
    finished = 0
    for _ in range(count):
        text = _ORACLE.sample(walked, chance)
        if text is not None:
            finished += 1
            assert valid(schema, strict_loads(text)), (schema, walked, text)
    return finished


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(VALUES, max_size=6), st.integers(0, 2**32))
def test_arbitrary_schemas(schema: Any, values: list[Any], seed: int) -> None:
    try:
        walked = walk(schema, "p")
    except RequestError:
        return
    for value in values:
        if _ORACLE.accepts(walked, value):
            assert valid(schema, value), (schema, walked, value)
    _check_samples(schema, walked, seed, 2)


@pytest.mark.full
@settings(max_examples=8_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(VALUES, max_size=6), st.integers(0, 2**32))
@pytest.mark.timeout(3_600)
def test_arbitrary_schemas_at_length(schema: Any, values: list[Any], seed: int) -> None:
    test_arbitrary_schemas.hypothesis.inner_test(schema, values, seed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_validate(name: str) -> None:
    schema = {"type": "string", "format": name}
    assert _check_samples(schema, walk(schema, "p"), 7, 30)


@pytest.mark.parametrize("path", sorted(_TOOL_SETS.glob("*.json")), ids=lambda path: path.stem)
def test_tool_sets_are_admitted_and_sound(path: Path) -> None:
    for tool in json.loads(path.read_text()):
        schema = tool["function"]["parameters"]
        _check_samples(schema, walk_parameters(schema, "p"), 1, 3)


def _groups() -> Iterator[dict[str, Any]]:
    folder = Path(os.environ["HEPTAGRAM_TEST_DATA"]) / _SUITE
    for path in sorted(folder.rglob("*.json")):
        yield from json.loads(path.read_text())


@pytest.mark.skipif("HEPTAGRAM_TEST_DATA" not in os.environ, reason="HEPTAGRAM_TEST_DATA holds the JSON Schema suite")
def test_json_schema_test_suite(capsys: pytest.CaptureFixture[str]) -> None:
    """Admitted groups accept nothing that the suite calls invalid."""
    counts: Counter[str] = Counter()
    wrong: list[Any] = []
    for group in _groups():
        try:
            walked = walk(group["schema"], "p")
        except RequestError:
            counts["refused"] += 1
            continue
        counts["admitted"] += 1
        for case in group["tests"]:
            accepted = _ORACLE.accepts(walked, case["data"])
            counts[f"{'valid' if case['valid'] else 'invalid'} {'accepted' if accepted else 'not generated'}"] += 1
            if accepted and not case["valid"]:
                wrong.append((group["schema"], case["data"]))
    with capsys.disabled():
        sys.stdout.write(f"\nJSON-Schema-Test-Suite: {dict(counts)}\n")
    assert not wrong
    assert counts["admitted"] > 200
