"""One short run of the suites on grammars: both ways compile the same tools, hostile schemas end with their codes."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from benchmarks.__main__ import run
from benchmarks.bench_grammar import hostile, tool_counts
from benchmarks.grammar_arms import FORMS, changed, declared
from benchmarks.hostile import HOSTILE

_JSON = FORMS[1]


def test_tools_are_real_and_each_name_stands_once() -> None:
    tools = declared(128)
    assert len({tool["function"]["name"] for tool in tools}) == len(tools) == 128
    assert tools[:10] == declared(10)
    assert len(declared(128, lengths=False)) == 128
    assert "maxLength" not in str(declared(128, lengths=False))
    assert changed(tools)[:-1] == tools[:-1]
    assert changed(tools)[-1] != tools[-1] == declared(128)[-1]


def test_both_ways_are_run_in_turn() -> None:
    data = tool_counts((_JSON,), (1, 2), 1, warm_up=False).data
    assert list(data) == [f"chatml_json, {count}{which}" for which in ("", " without lengths") for count in (1, 2)]
    for one in data.values():
        ours, builtin = (one["runs"][arm][0] for arm in ("ours", "built-in"))
        assert ours["mib"] > 0 < builtin["mib"]
        assert ours["walk_ms"] > 0 == builtin["walk_ms"]


def test_hostile_schemas_end_as_admitted_or_with_a_code() -> None:
    names = {
        "pattern (a+)+": "admitted",
        "$ref to itself, required": "unsupported_schema",
        "17 different maxLength": "repetition_too_large",
        "objects, 400 deep": "request_too_deep",
    }
    suite = hostile(_JSON, list(names))
    assert {name: one["outcome"] for name, one in suite.data.items()} == names
    assert suite.data["pattern (a+)+"]["slowest of 32 masks, ms"] > 0
    assert "compile, CPU ms" not in suite.data["$ref to itself, required"]


@pytest.mark.parametrize(
    "name", ["$ref doubled 30 times, required", "oneOf in oneOf, 6 deep", "32 of 64 properties (the limit)"]
)
def test_hostile_schemas_are_json_schema(name: str) -> None:
    Draft202012Validator.check_schema(HOSTILE[name]())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_part_runs_without_an_engine() -> None:
    titles = [suite.title for suite in run(["grammar"], quick=True, threads=1)]
    assert titles == ["Tool sets to grammars", "Hostile schemas, deepseek_v4"]
