"""Grammar and parser agree, for the formats whose prompt the checkpoint's template renders.

What an adversarial model can write is read and valid; valid arguments as the history writes them can be generated, and
are read back. The spellings that cannot: a number that is written otherwise than Python does, and for ``qwen3_xml`` a
string that reads as JSON of another declared type, or holds ``</parameter>``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import PastCall, ToolChoice
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import (
    CallArguments,
    CallBegin,
    CallFinished,
    Constraints,
    Parsed,
    PromptEncoding,
    Reasoning,
    When,
)
from heptagram_backend.formats.hermes.markup import call_text, canonical_arguments
from heptagram_backend.formats.qwen3_xml import Qwen3Xml
from heptagram_backend.generation import OutputSpec
from tests.formats.samples import call, parse, request, tool, walked
from tests.formats.schemas import FAMILIES as SHARED
from tests.formats.schemas import SMALL, Family, closed, in_order
from tests.formats.tokenizers import eos, factory, token_bytes, tokenizer
from tests.formats.walking import Vocabulary, accepts, walk

FORMATS = ("qwen3", "qwen3_xml", "llama3_json")
# Raw text of XML parameters; the second has a length, where the marker's first character is left out.
RAW = st.text(st.sampled_from('</>parmet= \n"\\{}é漢😀\r0'), max_size=12).filter(
    lambda text: "</parameter>" not in text
)
PLAIN = st.text(st.sampled_from('/> \n"\\é漢😀x'), min_size=2, max_size=9)


def _xml(fields: dict[str, tuple[Any, st.SearchStrategy[Any]]], required: list[str]) -> Family:
    schema = closed({name: field[0] for name, field in fields.items()}, required)
    return Family(schema, in_order({name: field[1] for name, field in fields.items()}, required))


def _nested(name: str) -> Family:
    """A free object stands one level deeper: only declared parameters can be enforced."""
    inner = SHARED[name]
    return Family(closed({"o": dict(inner.schema)}, ["o"]), st.fixed_dictionaries({"o": inner.values}))


_OBJECT = closed({"a": {"type": "integer"}}, ["a"])
XML: dict[str, Family] = {
    **{name: SHARED[name] for name in ("nothing", "nested", "recursive")},
    "bounded text": Family(
        SHARED["bounded text"].schema, SHARED["bounded text"].values.filter(lambda value: "<" not in value["code"])
    ),
    "a map": _nested("a map"),
    "anything": _nested("anything"),
    "scalars": _xml(
        {
            "city": ({"type": "string"}, RAW),
            "days": ({"type": "integer", "minimum": 1, "maximum": 30}, st.integers(1, 30)),
            "unit": ({"enum": ["°C", "F", None, 7]}, st.sampled_from(["°C", "F", None, 7])),
            "exact": ({"type": "boolean"}, st.booleans()),
            "factor": ({"type": "number"}, st.floats(-1e9, 1e9)),
        },
        ["city", "unit"],
    ),
    "maybe text": _xml(
        {"s": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, RAW.filter(lambda text: text != "null") | st.none())},
        ["s"],
    ),
    "text or number": _xml({"s": ({"type": ["string", "integer"]}, SMALL | RAW.map("s{}".format))}, ["s"]),
    "text or limited number": _xml(
        {"s": ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]}, st.integers(5, 10**9) | PLAIN)},
        ["s"],
    ),
    "text or an object": _xml({"s": ({"anyOf": [{"type": "string"}, _OBJECT]}, st.just({"a": 3}) | PLAIN)}, ["s"]),
    "text or false": _xml({"s": ({"anyOf": [{"type": "string"}, {"const": False}]}, st.just(False) | PLAIN)}, ["s"]),
    "any": _xml({"s": ({}, SMALL | st.booleans() | st.none() | RAW.map("s{}".format))}, ["s"]),
    "lengths": _xml(
        {
            "most": ({"type": "string", "maxLength": 12}, RAW),
            "one": ({"type": "string", "minLength": 1, "maxLength": 12}, RAW.filter(bool)),
            "least": ({"type": "string", "minLength": 2}, PLAIN),
        },
        ["one", "least"],
    ),
    "a text with a form or null": _xml(
        {"s": ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, st.none() | st.just("2024-02-01"))},
        ["s"],
    ),
    "many optional ones": _xml({name: ({"type": "integer"}, SMALL) for name in "abcdef"}, []),
    "markup inside JSON": _xml(
        {
            "list": (
                {"type": "array", "items": {"type": "string"}},
                st.lists(st.sampled_from(["\n</parameter>", "</parameter>\n</function>", "<tool_call>"]), max_size=3),
            )
        },
        ["list"],
    ),
}


JSON = {**SHARED, "anything": _nested("anything")}  # bare, a tool takes nothing


def families(name: str) -> dict[str, Family]:
    return XML if name == "qwen3_xml" else JSON


@cache
def vocabulary(name: str) -> Vocabulary:
    ends = ("\n</parameter>\n", "\n</parameter>\n</function>\n</tool_call>") if name == "qwen3_xml" else ('"', '"}}')
    endings = tuple(tuple(tokenizer(name).encode(end)) for end in (*ends, "</think>\n\n"))
    markup = b'\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n<parameter=a>\n{"name": "f"};'
    return Vocabulary(token_bytes(name), factory(name), eos(name), endings, b'"}]', markup + b"<|python_tag|>")


@cache
def held(name: str, family: str, reasoning: When, alone: bool = True) -> Constraints:
    """One call or more of a tool of the family; or also of one without parameters and one that is not enforced."""
    others = () if alone else (tool("other"), tool("loose", {"type": "object"}, enforced=False))
    tools = (walked("f", families(name)[family].schema), *others)
    asked = request(tools=tools, tool_choice=ToolChoice("required"))
    return load_format(name).constrain(asked, PromptEncoding((), reasoning))


def spec_of(constraints: Constraints) -> ConstraintSpec:
    assert constraints.constraint is not None
    return constraints.constraint


def read(name: str, answer: list[int], constraints: Constraints, *, inside: bool) -> list[Parsed]:
    """As the engine reads it, token by token, and whole."""
    output = OutputSpec(name, parse_calls=True, starts_in_reasoning=inside, tools=constraints.tools)
    detokenizer = Detokenizer(token_bytes(name))
    chunks = [*[detokenizer.feed(token) for token in answer], detokenizer.flush()]
    pieces = parse(load_format(name).parser(output), *chunks)
    assert pieces == parse(load_format(name).parser(output), "".join(chunks))
    return pieces


def check(name: str, family: str, pieces: list[Parsed]) -> None:
    """All is whole and valid; a name that a loose call gives twice is the one thing that is not read."""
    for place in range(0, len(pieces), 3):
        begin, arguments, finished = [*pieces[place : place + 3], None][:3]
        assert isinstance(begin, CallBegin)
        assert isinstance(arguments, CallArguments)
        if begin.name == "loose" and not isinstance(finished, CallFinished):
            return
        assert isinstance(finished, CallFinished), pieces
        value = json.loads(arguments.text)
        if begin.name == "f":
            schema = families(name)[family].schema
            Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
        else:
            assert begin.name == "loose" or (begin.name == "other" and value == {})


def run(name: str, walks: int, bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    finished = total = 0
    for place, family in enumerate(families(name)):
        for seed in range(walks):
            turn = place + seed // 4  # four walks under each constraint
            reasons: When = "never" if name == "llama3_json" else ("never", "maybe", "always")[turn % 3]
            constraints = held(name, family, reasons, alone=turn % 4 != 2)
            total += 1
            answer = walk(vocabulary(name), spec_of(constraints), seed, bias)
            if answer is None:
                continue
            finished += 1
            pieces = read(name, answer, constraints, inside=reasons == "always")
            check(name, family, pieces[1:] if pieces and isinstance(pieces[0], Reasoning) else pieces)
    with capsys.disabled():
        print(f"\n  {name}, bias {bias} to closing: {finished} of {total} walks ended, all read and valid", end="")  # noqa: T201
    assert not bias or finished >= 0.8 * total


@pytest.mark.parametrize("name", FORMATS)
def test_what_can_be_generated_is_read_and_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name, 4, 0.5, capsys)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_two_hundred_walks_of_each_family(name: str, bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    run(name, 200, bias, capsys)


def rendered(name: str, arguments: str) -> str:
    """A call as the template writes it into a later prompt."""
    if name == "qwen3":
        return call_text("f", canonical_arguments(arguments))
    if name == "llama3_json":
        return f'{{"name": "f", "parameters": {json.dumps(json.loads(arguments), ensure_ascii=False)}}}'
    past = Qwen3Xml().past_call(PastCall("c", "f", arguments), str)["arguments"]
    inner = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in past.items())
    return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"


@pytest.mark.parametrize(("name", "family"), [(name, family) for name in FORMATS for family in families(name)])
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_valid_arguments_can_be_generated_and_are_read_back(name: str, family: str, data: st.DataObject) -> None:
    value = data.draw(families(name)[family].values)
    constraints = held(name, family, "never")
    text = rendered(name, json.dumps(value, ensure_ascii=False))
    assume(text == normalize("NFC", text))  # as Qwen's tokenizer makes it
    assert accepts(vocabulary(name), spec_of(constraints), text), text
    pieces = read(name, tokenizer(name).encode(text), constraints, inside=False)
    assert pieces == call("f", json.dumps(value, ensure_ascii=False))
