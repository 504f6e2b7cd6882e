"""Objects and arrays that a schema lists are written as all other JSON is: with one blank behind ``,`` and ``:``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.conversation import ToolChoice
from heptagram_backend.formats.deepseek_v4 import DeepSeekV4
from heptagram_backend.generation import OutputSpec
from heptagram_backend.listed_values import ListedValues
from heptagram_backend.schema import walk
from heptagram_backend.validate import OutputValidator
from tests.formats.deepseek import grammar as deepseek
from tests.formats.deepseek.test_walks import rendered
from tests.formats.samples import call, parse, request, tool
from tests.preprocess.oracle import Oracle

_ORACLE = Oracle()
_VALUES: tuple[Any, ...] = (
    {"a": 1, "b": [1, 2.5, 'é"\\\n', None]},
    {"b": [], "a": {}},
    {"a": 1.0, "const": "listed0"},
    [[1, {"x": " , : "}], True],
    {},
    [],
)


@pytest.mark.parametrize("value", _VALUES)
def test_listed_values_are_canonical(value: Any) -> None:
    schemas: tuple[Any, ...] = ({"const": value}, {"enum": [value, "x", 3]}, {"enum": ["listed0", value, ["listed1"]]})
    for schema in schemas:
        assert _ORACLE.accepts(walk(schema, "p"), value)
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if compact != json.dumps(value, ensure_ascii=False):
            assert not _ORACLE.matcher(walk(schema, "p")).accept_text(compact.encode())
    assert _ORACLE.accepts(walk(schemas[2], "p"), "listed0")
    assert _ORACLE.accepts(walk(schemas[2], "p"), ["listed1"])


def test_a_property_named_as_the_keyword_is_none() -> None:
    schema = {"type": "object", "properties": {"const": {"const": [1, 2]}, "enum": {"enum": [[1, 2], 3]}}}
    assert _ORACLE.accepts(walk(schema, "p"), {"const": [1, 2], "enum": [1, 2]})
    made = ListedValues(json.dumps({"properties": {"const": {"type": "array", "items": {}}}}))
    assert json.loads(made.hidden) == {"properties": {"const": {"type": "array", "items": {}}}}
    rules = {"root": '"x"'}
    assert made.shown(rules) is rules


@pytest.mark.parametrize("value", _VALUES)
def test_what_the_encoder_of_dsml_writes_is_accepted_and_read_back(value: Any) -> None:
    schema = {"type": "object", "properties": {"p": {"enum": [value, "raw", 7]}}, "required": ["p"]}
    asking = request(tools=(tool("f", walk(schema, "p")),), tool_choice=ToolChoice("required"))
    spec = DeepSeekV4().constrain(asking).constraint
    assert spec is not None
    arguments = json.dumps({"p": value}, ensure_ascii=False)
    text = rendered("v4", "f", arguments)
    matcher = deepseek.factory().matcher(spec)
    assert matcher.accept_text(text.encode())
    assert parse(DeepSeekV4().parser(OutputSpec("deepseek_v4", parse_calls=True)), text) == call("f", arguments)
    OutputValidator({}, schema).check_text(arguments)
    matcher.close()
