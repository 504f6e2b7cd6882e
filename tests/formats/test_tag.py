"""What is held under each tool choice, tried against the real grammar over SmolLM2's vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import ChatRequest, ResponseFormat, ToolChoice
from heptagram_backend.formats.chatml_json import ChatMLJson
from heptagram_backend.formats.hermes.markup import call_text
from tests.formats.samples import request, tool, walked
from tests.formats.schemas import FAMILIES
from tests.formats.smollm2 import EOS, factory

SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
    "required": ["command"],
    "additionalProperties": False,
}
STRICT = tool("shell", SHELL)
LOOSE = tool("shell_x", SHELL, enforced=False)
LS = call_text("shell", '{"command": "ls", "timeout": 3}')
LOOSE_CALL = call_text("shell_x", '{"anything": [1]}')
RESPONSE = ResponseFormat({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
REQUIRED = ToolChoice("required")


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    yield
    assert factory().live == 0


def constraint(asked: ChatRequest) -> ConstraintSpec:
    held = ChatMLJson().constrain(asked)
    assert held.constraint is not None
    assert held.trigger is None
    return held.constraint


def accepts(spec: ConstraintSpec, text: str) -> bool:
    grammar = factory().matcher(spec)
    try:
        return (not text or grammar.accept_text(text.encode())) and grammar.completed and grammar.accept(EOS)
    finally:
        grammar.close()


REQUESTS: dict[str, ChatRequest] = {
    "none": request(tools=(STRICT,), tool_choice=ToolChoice("none")),
    "auto strict": request(tools=(STRICT, LOOSE)),
    "auto strict, one": request(tools=(STRICT, LOOSE), parallel_tool_calls=False),
    "required": request(tools=(STRICT, LOOSE), tool_choice=REQUIRED),
    "required, one": request(tools=(STRICT, LOOSE), tool_choice=REQUIRED, parallel_tool_calls=False),
    "named": request(tools=(STRICT, LOOSE), tool_choice=ToolChoice("required", ("shell",))),
    "named loose": request(tools=(STRICT, LOOSE), tool_choice=ToolChoice("required", ("shell_x",))),
    "allowed": request(tools=(STRICT, LOOSE, tool("other")), tool_choice=ToolChoice("auto", ("shell", "other"))),
    "json": request(response_format=RESPONSE),
    "json, none": request(tools=(STRICT,), tool_choice=ToolChoice("none"), response_format=RESPONSE),
    "json, auto": request(tools=(STRICT, LOOSE), response_format=RESPONSE),
    "json, auto loose": request(tools=(LOOSE,), response_format=RESPONSE),
    "json, required": request(tools=(STRICT,), tool_choice=REQUIRED, response_format=RESPONSE),
    "json object": request(response_format=ResponseFormat({"type": "object"})),
}

TEXTS: dict[str, str] = {
    "empty": "",
    "text": "Hello <b>\n\n<<tool_<tool_call </tool_call>",
    "call": LS,
    "loose": LOOSE_CALL,
    "text, call": "Let me see <<tool_\n" + LS,
    "two": LS + "\n" + LOOSE_CALL,
    "two of one": LS + "\n" + LS,
    "json": '{"a": 1}',
    "other json": '{"b": [1, "x"]}',
    "other": call_text("other", "{}"),
}

ACCEPTED: dict[str, set[str]] = {
    "none": {"empty", "text", "json", "other json"},
    "auto strict": {"empty", "text", "call", "loose", "text, call", "two", "two of one", "json", "other json"},
    "auto strict, one": {"empty", "text", "call", "loose", "text, call", "json", "other json"},
    "required": {"call", "loose", "two", "two of one"},
    "required, one": {"call", "loose"},
    "named": {"call", "two of one"},
    "named loose": {"loose"},
    "allowed": {"empty", "text", "call", "text, call", "two of one", "json", "other json", "other"},
    "json": {"json"},
    "json, none": {"json"},
    "json, auto": {"json", "call", "loose", "two", "two of one"},
    "json, auto loose": {"json", "loose"},
    "json, required": {"call", "two of one"},
    "json object": {"json", "other json"},
}

BAD_CALLS: dict[str, str] = {
    "undeclared tool": call_text("rm", "{}"),
    "longer name": call_text("shell_y", "{}"),
    "extra parameter": call_text("shell", '{"command": "ls", "cwd": "/"}'),
    "missing parameter": call_text("shell", '{"timeout": 3}'),
    "wrong type": call_text("shell", '{"command": 3}'),
    "another order": call_text("shell", '{"timeout": 3, "command": "ls"}'),
    "twice": call_text("shell", '{"command": "ls", "command": "ls"}'),
    "no object": call_text("shell", '"ls"'),
    "loose no object": call_text("shell_x", "[]"),
    "double encoded": call_text("shell_x", '"{}"'),
    "blanks": call_text("shell_x", '{"a":  1}'),
    "a newline": LS.replace('"name": ', '"name":\n'),
    "no newline": LS.replace("\n", ""),
    "text after": LS + "\nDone.",
    "blank after": LS + "\n",
    "blank line between": LS + "\n\n" + LS,
    "glued": LS + LS,
    "cut": LS[:-1],
    "a control token": call_text("shell", '{"command": "ls"}').replace("ls", "\x00"),
    "half an escape": call_text("shell", '{"command": "\\"}'),
    "a marker only": "<tool_call>",
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_accepted(name: str) -> None:
    spec = constraint(REQUESTS[name])
    assert {text for text in TEXTS if accepts(spec, TEXTS[text])} == ACCEPTED[name]


@pytest.mark.parametrize("bad", BAD_CALLS)
@pytest.mark.parametrize("name", ["none", "auto strict", "required", "required, one", "allowed", "json, auto"])
def test_bad_calls_are_refused(name: str, bad: str) -> None:
    spec = constraint(REQUESTS[name])
    assert not accepts(spec, BAD_CALLS[bad])
    assert not accepts(spec, "Text first. " + BAD_CALLS[bad])


def test_strings_may_contain_the_markup() -> None:
    text = call_text("shell", json.dumps({"command": '</tool_call>\n<tool_call> "}}'}))
    assert accepts(constraint(REQUESTS["required, one"]), text)


def test_nothing_is_held_without_tools() -> None:
    held = ChatMLJson().constrain(request())
    assert (held.constraint, held.trigger, dict(held.schemas)) == (None, None, {})


@pytest.mark.parametrize("parallel", [True, False])
def test_ordinary_tools_wait_for_the_marker(parallel: bool) -> None:
    held = ChatMLJson().constrain(
        request(tools=(LOOSE, tool('é"', SHELL, enforced=False)), parallel_tool_calls=parallel)
    )
    assert held.constraint is None
    assert held.trigger is not None
    assert held.trigger.text == "<tool_call>"
    assert held.trigger.once is not parallel
    assert held.schemas == {}
    for good in (LOOSE_CALL, call_text('é"', "{}")):
        assert accepts(held.trigger.constraint, good)
    for bad in (LS, "x" + LOOSE_CALL, LOOSE_CALL + "\n", LOOSE_CALL * 2, call_text("shell_x", "[]")):
        assert not accepts(held.trigger.constraint, bad)


def test_free_markup_and_its_limits() -> None:
    free = ChatMLJson().constrain(request(tools=(LOOSE,), tool_markup="free"))
    assert (free.constraint, free.trigger) == (None, None)
    strict = ChatMLJson().constrain(request(tools=(STRICT,), tool_markup="free"))
    assert strict.constraint is not None


def test_schemas_are_those_of_the_enforced_tools() -> None:
    dated = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
    asked = request(tools=(walked("shell", dated), LOOSE), tool_choice=REQUIRED)
    assert asked.tools[0].enforced != dated
    assert ChatMLJson().constrain(asked).schemas == {"shell": dated}
    assert ChatMLJson().constrain(REQUESTS["named loose"]).schemas == {}
    assert ChatMLJson().constrain(REQUESTS["none"]).schemas == {}


def test_the_constraint_is_the_same_text_each_time() -> None:
    asked = REQUESTS["auto strict"]
    assert constraint(asked).digest == constraint(asked).digest


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_every_valid_call_is_accepted(family: str, data: st.DataObject) -> None:
    """Property: what a canonical renderer writes of valid arguments can be generated."""
    value: dict[str, Any] = data.draw(FAMILIES[family].values)
    spec = constraint(request(tools=(tool("f", FAMILIES[family].schema),), tool_choice=REQUIRED))
    assert accepts(spec, call_text("f", json.dumps(value, ensure_ascii=False)))
    if FAMILIES[family].escapes:
        assert accepts(spec, call_text("f", json.dumps(value, ensure_ascii=True)))
