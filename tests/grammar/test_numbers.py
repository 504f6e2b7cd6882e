"""Every number and every string of a schema ends, wherever it stands: beside a bound, and behind a ``$ref``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.ebnf import SPLIT_STRING, harden, read
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.json_value import json_node
from heptagram_backend.lowering import lower
from heptagram_backend.schema import walk
from heptagram_backend.xgrammar_impl import _json_rules
from tests.grammar.test_ebnf import BASIC
from tests.preprocess.oracle import Oracle

_ORACLE = Oracle()
_NUMBERS = ({"type": "number"}, {"type": "integer"})
_BOUNDED: tuple[dict[str, Any], ...] = (
    {"minimum": 0},
    {"minimum": 50},
    {"exclusiveMinimum": -3},
    {"maximum": 10**14},
    {"maximum": -1},
    {},
)


def _generates(schema: Any, text: str) -> bool:
    matcher = _ORACLE.matcher(walk(schema, "p"))
    return matcher.accept_text(text.encode()) and matcher.completed


@pytest.mark.parametrize("bounds", _BOUNDED)
@pytest.mark.parametrize("schema", _NUMBERS)
@pytest.mark.parametrize("referred", [False, True])
def test_numbers_end(schema: dict[str, Any], bounds: dict[str, Any], referred: bool) -> None:
    whole = {**schema, **bounds}
    if referred:
        whole = {"$ref": "#/$defs/n", "$defs": {"n": whole}}
    sign = "-" if "maximum" in bounds else ""
    assert _generates(whole, sign + "7" * 12)
    assert _generates(whole, sign + "7" * 30)
    for endless in ("7" * 40, "7" * 400, "1e999", "1e400", "0." + "1" * 40):
        assert not _generates(whole, sign + endless)


def test_what_only_looks_like_digits_stays() -> None:
    rules = harden(read('root ::= ("[0-9]*" d{1, -1} other{1, -1} [0-9]*)\nd ::= (([0-9]))\nother ::= ((d))\n' + BASIC))
    assert rules["root"] == '("[0-9]*" d{1, 31} other{1, -1} [0-9]{0, 31})'


def test_strings_behind_a_reference_have_the_budget_of_all_strings() -> None:
    enforced = walk({"$ref": "#/$defs/s", "$defs": {"s": {"type": "string"}}}, "p")
    grammar = lower(json_node(enforced, AnswerBounds(string_tokens=5)), _json_rules)["grammar"]
    rules = read(grammar.replace("[max_tokens=5] ::=", " ::="))
    assert rules["basic_string"] == SPLIT_STRING["basic_string"]
    assert not [name for name, body in rules.items() if "basic_string_sub" in body and name != "basic_string_sub"]
    assert json.dumps(enforced).count("$ref") == 1
