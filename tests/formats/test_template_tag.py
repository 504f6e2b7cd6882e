"""What is held under each tool choice for Qwen and Llama, tried against the real grammar over real vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import ChatRequest, ResponseFormat, ToolChoice
from heptagram_backend.errors import RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import AnswerBounds, PromptEncoding, When
from tests.formats.samples import request, tool, walked
from tests.formats.test_template_walks import FORMATS, rendered, vocabulary
from tests.formats.tokenizers import factory
from tests.formats.walking import accepts, begins

SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
    "required": ["command"],
    "additionalProperties": False,
}
STRICT, LOOSE = walked("f", SHELL), tool("g", SHELL, enforced=False)
RESPONSE = ResponseFormat({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
REQUIRED = ToolChoice("required")
REQUESTS: dict[str, ChatRequest] = {
    "none": request(tools=(STRICT,), tool_choice=ToolChoice("none")),
    "auto strict": request(tools=(STRICT, LOOSE)),
    "auto strict, one": request(tools=(STRICT, LOOSE), parallel_tool_calls=False),
    "required": request(tools=(STRICT, LOOSE), tool_choice=REQUIRED),
    "required, one": request(tools=(STRICT, LOOSE), tool_choice=REQUIRED, parallel_tool_calls=False),
    "named": request(tools=(STRICT, LOOSE), tool_choice=ToolChoice("required", ("f",))),
    "json": request(response_format=RESPONSE),
    "json, auto": request(tools=(STRICT,), response_format=RESPONSE),
}
ACCEPTED = {
    "none": {"text"},
    "auto strict": {"text", "call", "loose", "text, call", "two"},
    "auto strict, one": {"text", "call", "loose", "text, call"},
    "required": {"call", "loose", "two"},
    "required, one": {"call", "loose"},
    "named": {"call"},
    "json": {"json"},
    "json, auto": {"json", "call"},
}


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    yield
    assert all(factory(name).live == 0 for name in FORMATS)


def texts(name: str) -> dict[str, str]:
    call = rendered(name, '{"command": "ls", "timeout": 3}')
    loose = rendered(name, '{"x": [1]}').replace('"f"', '"g"').replace("=f>", "=g>")
    return {
        "text": "Hello <b>\n\n< tool_call> {}",
        "call": call,
        "loose": loose,
        "text, call": ("Hm <|python_tag|>" if name == "llama3_json" else "Hm\n") + call,
        "two": call + ("; " if name == "llama3_json" else "\n") + loose,
        "undeclared": call.replace('"f"', '"h"').replace("=f>", "=h>"),
        "of another type": call.replace("3", "true"),
        "another parameter": rendered(name, '{"command": "ls", "x": 3}'),
        "none of what is required": rendered(name, '{"timeout": 3}'),
        "text behind": call + "\nDone.",
        "half a call": call[:-1],
        "json": '{"a": 3}',
    }


def held(name: str, asked: ChatRequest, reasoning: When = "never") -> ConstraintSpec:
    constraints = load_format(name).constrain(asked, PromptEncoding((), reasoning))
    assert constraints.constraint is not None
    assert constraints.trigger is None
    return constraints.constraint


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", REQUESTS)
def test_what_is_accepted(name: str, case: str) -> None:
    spec = held(name, REQUESTS[case])
    found = {text for text, written in texts(name).items() if accepts(vocabulary(name), spec, written)}
    free = {"json"} if case.startswith(("none", "auto")) else set()  # any text is
    assert found == ACCEPTED[case] | free


@pytest.mark.parametrize("name", ["qwen3", "qwen3_xml"])
def test_reasoning_is_part_of_the_grammar(name: str) -> None:
    call, words = texts(name)["call"], vocabulary(name)
    always, maybe, never = (held(name, REQUESTS["required"], when) for when in ("always", "maybe", "never"))
    inside = "Hm\n</think>\n\n" + call
    assert [accepts(words, spec, inside) for spec in (always, maybe, never)] == [True, False, False]
    assert [accepts(words, spec, "<think>\n" + inside) for spec in (always, maybe, never)] == [False, True, False]
    assert [accepts(words, spec, call) for spec in (always, maybe, never)] == [False, True, True]
    assert not accepts(words, always, "Hm\n</think>" + call)
    assert not begins(words, always, "Hm <tool_call>")
    text = held(name, REQUESTS["auto strict"], "always")
    assert accepts(words, text, "Hm</think>\n\nSo be it.")
    assert not accepts(words, text, "Hm")


@pytest.mark.parametrize("name", ["qwen3", "qwen3_xml"])
def test_an_ordinary_answer_is_free_up_to_a_call(name: str) -> None:
    asked, words = request(tools=(LOOSE,)), vocabulary(name)
    loose = texts(name)["loose"]
    cases: list[tuple[When, str, str]] = [
        ("never", "", ""),
        ("maybe", "</think>", "<think>"),
        ("always", "</think>", ""),
    ]
    for when, after, opening in cases:
        constraints = load_format(name).constrain(asked, PromptEncoding((), when))
        assert constraints.constraint is None
        assert constraints.trigger is not None
        assert (constraints.trigger.after, constraints.trigger.opening) == (after, opening)
        assert loose.startswith(constraints.trigger.text)
        assert not constraints.trigger.once
        assert accepts(words, constraints.trigger.constraint, loose)
        assert not accepts(words, constraints.trigger.constraint, loose + "\n" + loose)
        assert not accepts(words, constraints.trigger.constraint, texts(name)["call"])
    free = load_format(name).constrain(request(tools=(LOOSE,), tool_markup="free"))
    assert (free.constraint, free.trigger) == (None, None)


def test_llamas_ordinary_answer_is_held_from_its_beginning() -> None:
    spec, words = held("llama3_json", request(tools=(LOOSE,))), vocabulary("llama3_json")
    loose = texts("llama3_json")["loose"]
    for text in (
        "",
        "Hello",
        '{"a": 1}',
        "<b>",
        "{<",
        '{"names": 1}',
        "[1]",
        "\n {",
        loose,
        f"So: <|python_tag|>{loose}",
    ):
        assert accepts(words, spec, text), text
    for text in (
        '{"name": 1}',
        '{"name"',
        '\n{ "name":"g"}',
        "<|python_tag|>print(1)",
        "a <|python_tag|>",
        loose + " x",
    ):
        assert not accepts(words, spec, text), text
    bare = held("llama3_json", REQUESTS["none"])
    assert not accepts(words, bare, loose)
    assert not begins(words, bare, "a <|python_tag|>")


def only(schema: dict[str, Any], bounds: AnswerBounds | None = None) -> ConstraintSpec:
    declared = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    asked = request(tools=(walked("f", declared),), tool_choice=REQUIRED)
    constraint = load_format("qwen3_xml", bounds).constrain(asked).constraint
    assert constraint is not None
    return constraint


@pytest.mark.parametrize(
    ("schema", "values", "others"),
    [
        ({"type": "string"}, ["", "null", "5", "{", "a\n</param", "<x>"], ["</parameter>", "a</parameter>b"]),
        ({"type": "integer"}, ["5"], ["", "x", '"5"', "5.5", " 5"]),
        ({"type": ["string", "null"]}, ["", "null", "5", "{}"], ["</parameter>"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 9}]}, ["7", "x", ""], ["10", "-x", "5x"]),
        ({"enum": ["a", 7, None]}, ["a", "7", "null"], ["b", '"a"', "", "8"]),
        ({"const": "x</"}, ["x</"], ["x"]),
        ({"type": "array", "items": {"type": "string"}}, ['["a", "</parameter>"]', "[]"], ['["a"', "[1]", '["\n"]']),
        ({"type": "string", "format": "date"}, ["2024-02-01"], ["2024", '"2024-02-01"']),
        ({}, ["x", "5", '{"a": [1]}'], ["</parameter>"]),
    ],
)
def test_values_of_a_parameter(schema: dict[str, Any], values: list[str], others: list[str]) -> None:
    spec, words = only(schema), vocabulary("qwen3_xml")

    def written(value: str) -> str:
        return f"<tool_call>\n<function=f>\n<parameter=p>\n{value}\n</parameter>\n</function>\n</tool_call>"

    assert [value for value in values + others if accepts(words, spec, written(value))] == values


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"enum": ["8", 7]}, "is read as JSON of another declared type"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "integer", "minimum": 3}]}, "cannot be told from"),
        ({"const": "a</parameter>"}, "ends a raw string"),
        ({"type": "string", "pattern": "^<a>$"}, "the pattern demands <"),
    ],
)
def test_what_the_markup_cannot_tell_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        only(schema)
    assert caught.value.wire.param == "tools[0].function.parameters"
    assert "#/properties/p" in caught.value.wire.message


def test_names_that_cannot_be_written_are_refused() -> None:
    for name in ("a>b", "a\n", "<"):
        with pytest.raises(RequestError, match="cannot be written") as caught:
            load_format("qwen3_xml").constrain(request(tools=(tool(name, enforced=False),)))
        assert caught.value.wire.param == "tools[0].function.name"
        declared = {"type": "object", "properties": {name: {}}, "additionalProperties": False}
        with pytest.raises(RequestError, match="cannot be written"):
            load_format("qwen3_xml").constrain(request(tools=(walked("f", declared),), tool_choice=REQUIRED))


def test_no_control_token_is_ever_allowed_but_the_markers() -> None:
    for name in FORMATS:
        spec, words = held(name, REQUESTS["auto strict"]), vocabulary(name)
        silent = [token for token, text in enumerate(words.token_bytes) if text is None and token != words.eos]
        assert len(silent) == {"llama3_json": 254}.get(name, 21)
        grammar = words.factory.matcher(spec)
        assert grammar.accept_text(b"Hm")
        assert not any(grammar.accept(token) for token in silent)
        grammar.close()
