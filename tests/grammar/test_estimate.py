"""The estimate of a compile: what real requests hold needs no child, what grows out of hand does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.formats import load_format
from heptagram_backend.schema.limits import SchemaLimits
from heptagram_backend.trial.estimate import ADVICE, COSTLY, DOUBTFUL, estimate
from tests.preprocess.asking import body, parse

_SETS = sorted((Path(__file__).parents[1] / "data" / "toolsets").glob("*.json"))
_DEEPSEEK = 129_280
_LIMITS = SchemaLimits()


def schema(value: Mapping[str, Any]) -> ConstraintSpec:
    return ConstraintSpec("json_schema", json.dumps(value))


def _properties(count: int, value: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{place}": value for place in range(count)}, **more}


@pytest.mark.parametrize("name", ["chatml_json", "deepseek_v4"])
@pytest.mark.parametrize("path", _SETS, ids=lambda path: path.stem)
def test_real_tool_sets_need_no_child(path: Path, name: str) -> None:
    tools = json.loads(path.read_text(encoding="utf-8"))
    tools = tools["tools"] if isinstance(tools, dict) else tools
    found = load_format(name).constrain(parse(body(tools=tools, tool_choice="required"))).constraint
    assert found is not None
    assert estimate(found, _DEEPSEEK).work < DOUBTFUL


@pytest.mark.parametrize("name", ["chatml_json", "deepseek_v4"])
def test_as_many_tools_as_a_request_may_have_need_no_child(name: str) -> None:
    parameters = _properties(6, {"type": "string", "description": "words " * 20}, required=["p0"])
    parameters["properties"]["p1"] = {"enum": ["a", "b", "c"]}
    parameters["properties"]["p2"] = {"type": "string", "maxLength": 500}
    parameters["properties"]["p3"] = {"type": "integer", "minimum": 0, "maximum": 1000}
    tools = [{"type": "function", "function": {"name": f"t{place}", "parameters": parameters}} for place in range(100)]
    found = load_format(name).constrain(parse(body(tools=tools, tool_choice="required"))).constraint
    assert found is not None
    assert COSTLY < estimate(found, _DEEPSEEK).work < DOUBTFUL


@pytest.mark.parametrize(
    ("value", "worst"),
    [
        ({"anyOf": [{"enum": [f"{place:040}" for place in range(5_000)]}]}, "long `enum`"),
        (
            _properties(20, _properties(64, {}, minProperties=3, maxProperties=40)),
            "`minProperties` and `maxProperties`",
        ),
        (_properties(2_000, {"type": "string"}), "many properties of one object"),
        (
            _properties(1, {"anyOf": [{"pattern": f'"[a-{x}]{{0,999}}"'} for x in "bcdefghijklmnopqrstuvwxyz" * 2]}),
            "counted lengths of strings",
        ),
        (
            {"anyOf": [{"type": "number", "minimum": place, "maximum": place} for place in range(2_000)]},
            "bounds of numbers",
        ),
        (
            _properties(1, {"anyOf": [{"type": "integer", "multipleOf": step} for step in range(80, 120)]}),
            "bounds of numbers",
        ),
        ({"anyOf": [{"type": "null", "title": f"{place}"} for place in range(20_000)]}, "the size of the schemas"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_grows_faster_than_its_text_is_doubtful(value: dict[str, Any], worst: str) -> None:
    found = estimate(schema(value), _DEEPSEEK)
    assert found.work >= DOUBTFUL
    assert found.worst == worst
    assert ADVICE[worst]


def test_depth_is_doubtful() -> None:
    deep = ConstraintSpec("structural_tag", '{"a":' * 300 + "1" + "}" * 300)
    assert estimate(deep).worst == "the depth of the schemas"
    assert estimate(deep).work >= DOUBTFUL


def test_what_cannot_be_read_is_left_to_the_compiler() -> None:
    for source in ("{", "[" * 100_000):
        assert estimate(ConstraintSpec("json_schema", source)).work < DOUBTFUL


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "yes" | "no"',
        'root ::= ([a-z]{1,20} "@" [a-z]+ "." [a-z]+)\n',
        'root ::= "a root ::= (b*)*"',
        r'root ::= [^"\\]* "x"',
    ],
)
def test_a_plain_rule_needs_no_child(grammar: str) -> None:
    assert estimate(ConstraintSpec("ebnf", grammar)).work < COSTLY


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= root root | "a"',
        'root ::= a\na ::= "x"',
        'root ::= ([a-z]*)* "x"',
        'root ::= (("a" "b"+) "c"){2}',
        'root ::= ([a-z]+ ("." [a-z]+){1,3})',
        'a ::= "x"',
    ],
)
def test_rules_that_may_have_many_readings_are_doubtful(grammar: str) -> None:
    found = estimate(ConstraintSpec("ebnf", grammar))
    assert found.work >= DOUBTFUL
    assert found.worst == "rules that can be read in many ways"
