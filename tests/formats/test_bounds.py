"""What ends a constrained answer whose schema sets no bound: the values of ``answer:`` in ``release.yaml``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import ChatRequest, ResponseFormat, Tool, ToolChoice
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.markup import call_text
from heptagram_backend.formats.json_value import bounded
from heptagram_backend.release import Release
from heptagram_backend.schema import walk
from tests.formats.samples import request, tool, walked
from tests.formats.smollm2 import EOS, encode, factory, token_bytes

BOUNDS = AnswerBounds(string_tokens=3, array_items=2)
ROOT = Path(__file__).resolve().parents[2]
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "long": {"type": "string", "minLength": 12, "maxLength": 12},
        "list": {"type": "array", "items": {"type": "integer"}},
        "least": {"type": "array", "items": {"type": "integer"}, "minItems": 4},
        "any": {},
    },
    "additionalProperties": False,
}
WITHIN: list[dict[str, Any]] = [
    {"s": "a"},
    {"long": "abcdefghijkl"},
    {"list": [1, 2]},
    {"least": [1, 2, 3, 4]},
    {"any": [[1, 2], {"a": 1, "b": []}]},
]
BEYOND: list[dict[str, Any]] = [
    {"s": "one two three four five"},
    {"list": [1, 2, 3]},
    {"least": [1, 2, 3, 4, 5]},
    {"any": [1, 2, 3]},
    {"any": [[1, 2, 3]]},
    {"any": {"a": 1, "b": 2, "c": 3}},
    {"any": {"a": {"a": 1, "b": 2, "c": 3}}},
    {"any": "one two three four five"},
]


def accepts(spec: ConstraintSpec | None, text: str) -> bool:
    """Can ``text`` be generated? Asked of the masks, which alone hold a bound of tokens."""
    assert spec is not None
    grammar = factory().matcher(spec)
    row = np.zeros(-(-len(token_bytes()) // 32), np.int32)
    try:
        for token in [*encode(text), EOS]:
            if grammar.fill(row) and not row[token // 32] >> token % 32 & 1:
                return False
            assert grammar.accept(token)
        return True
    finally:
        grammar.close()


def asked(declared: Tool, **fields: Any) -> ChatRequest:
    return request(tools=(declared,), **{"tool_choice": ToolChoice("required"), **fields})


@pytest.mark.parametrize("value", WITHIN)
def test_values_within_the_bounds_can_be_generated(value: dict[str, Any]) -> None:
    chat = load_format("chatml_json", BOUNDS)
    assert accepts(chat.constrain(asked(walked("f", CLOSED))).constraint, call_text("f", json.dumps(value)))
    assert accepts(chat.constrain(asked(tool("f", enforced=False))).constraint, call_text("f", '{"a": {"b": [1, 2]}}'))


@pytest.mark.parametrize("value", BEYOND)
def test_values_beyond_the_bounds_cannot(value: dict[str, Any]) -> None:
    call = call_text("f", json.dumps(value))
    for declared in (walked("f", CLOSED), tool("f", CLOSED, enforced=False)):
        small = load_format("chatml_json", BOUNDS).constrain(asked(declared)).constraint
        large = load_format("chatml_json").constrain(asked(declared)).constraint
        assert accepts(large, call)
        if declared.enforced or "least" not in value:
            assert not accepts(small, call)


def test_the_shape_behind_a_trigger_and_a_response_format_are_bounded_too() -> None:
    chat = load_format("chatml_json", BOUNDS)
    held = chat.constrain(request(tools=(tool("f", enforced=False),))).trigger
    assert held is not None
    assert accepts(held.constraint, call_text("f", '{"a": [1, 2]}'))
    assert not accepts(held.constraint, call_text("f", '{"a": [1, 2, 3]}'))
    response = request(response_format=ResponseFormat(walk({"type": "object"}, "x")))
    assert accepts(chat.constrain(response).constraint, '{"a": {"b": [1, 2]}}')
    assert not accepts(chat.constrain(response).constraint, '{"a": {"b": [1, 2, 3]}}')


def test_text_before_calls_is_bounded_by_max_tokens_alone() -> None:
    held = load_format("chatml_json", BOUNDS).constrain(request(tools=(tool("f"),))).constraint
    assert accepts(held, "one two three four five six seven eight nine ten\n" + call_text("f", "{}"))


def test_a_guide_of_a_completion_is_bounded() -> None:
    guide = bounded(ConstraintSpec.json_schema(walk({"type": "array"}, "guide")), BOUNDS)
    assert accepts(guide, "[[1, 2], 3]")
    assert not accepts(guide, "[1, 2, 3]")
    written = ConstraintSpec("ebnf", 'root ::= "a"*')
    assert bounded(written, BOUNDS) is written


def release(**answer: Any) -> Release:
    return Release.parse({"served_model_name": "m", "checkpoint": "x", "format": "chatml_json", "answer": answer})


def test_bounds_are_read_from_the_release() -> None:
    assert release().answer == AnswerBounds()
    assert release(string_tokens=3, array_items=2).answer == BOUNDS
    for path in ROOT.glob("model_repository/*/1/release.yaml"):
        assert "\nanswer:\n" in path.read_text(encoding="utf-8")
        assert Release.load(path.parent).answer == AnswerBounds()


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"string_tokens": 0}, "answer.string_tokens: must be a whole number of at least 1, not 0"),
        ({"array_items": -1}, "answer.array_items"),
        ({"array_items": "many"}, "answer.array_items: must be a whole number of at least 1, not 'many'"),
        ({"array_items": True}, "answer.array_items"),
        ({"string_tokens": 1.5}, "answer.string_tokens"),
        ({"strings": 9}, "there is no answer.strings; known are string_tokens, array_items"),
        ([1], "answer: must be a mapping"),
    ],
)
def test_wrong_bounds_are_refused(answer: Any, fault: str) -> None:
    data = {"served_model_name": "m", "checkpoint": "x", "format": "chatml_json", "answer": answer}
    with pytest.raises(ReleaseError, match=fault.replace("(", r"\(")):
        Release.parse(data)


@pytest.mark.parametrize("endless", [b"\xf0", b"\\"], ids=["bytes of a character", "escapes"])
def test_a_budget_that_runs_out_inside_a_character_lets_it_be_completed_and_no_more(
    endless: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library then complains on stderr, but once a request however many strings overrun and rows are planned."""
    spec = ConstraintSpec.json_schema(walk({"type": "array", "items": {"type": "string"}, "maxItems": 20}, "p"))
    grammar = factory().matcher(bounded(spec, BOUNDS))
    chance = random.Random(0)
    row = np.zeros(-(-len(token_bytes()) // 32), np.int32)
    text, longest, since = b"", 0, 0
    while not grammar.terminated:
        assert grammar.fill(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[: len(token_bytes())]).tolist()
        wished = [token for token in allowed if token_bytes()[token] == endless]
        others = [token for token in allowed if b"]" not in (token_bytes()[token] or b"]")]
        token = chance.choice(wished or others or allowed)
        assert grammar.accept(token)
        grammar.rollback(1)
        assert grammar.accept(token)
        piece = token_bytes()[token] or b""
        text, since = text + piece, 0 if b'"' in piece else since + 1
        longest = max(longest, since)
    grammar.close()
    assert all(isinstance(one, str) for one in json.loads(text.decode()))
    # The second half of a pair in escapes, \ud83d\ude00, is the longest that can be left: 11 characters.
    assert BOUNDS.string_tokens < longest <= BOUNDS.string_tokens + 11
    assert capfd.readouterr().err.count("Warning") <= 1
