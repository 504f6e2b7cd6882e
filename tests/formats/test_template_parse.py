"""What a model of Qwen or Llama wrote, read back: whole, one character at a time, by tokens and in random chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, OutputParser, Parsed, Reasoning, Text
from heptagram_backend.formats.qwen3_xml.types import ANY, json_text, types_of
from heptagram_backend.generation import GenerationRequest, Markup, OutputSpec
from tests.formats.samples import call, merged, parse
from tests.formats.tokenizers import token_bytes, tokenizer

TOOLS = {
    "f": {"s": "string", "n": "integer", "m": "null|string", "o": "object|string"},
    "g": {},
}


def xml(name: str, **values: str) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def lama(name: str, arguments: str = "{}") -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


HALF = [CallBegin("f"), CallArguments('{"s": "')]
XML: dict[str, tuple[str, list[Parsed]]] = {
    "text": ("Hello </parameter> <b>", [Text("Hello </parameter> <b>")]),
    "a call": (xml("f", s="a", n="3"), call("f", '{"s": "a", "n": 3}')),
    "no parameters": (xml("g"), call("g", "{}")),
    "text, call": ("So:\n\n" + xml("g"), [Text("So:"), *call("g", "{}")]),
    "text, one line break, call": ("So:\n" + xml("g"), [Text("So:\n"), *call("g", "{}")]),
    "two calls": (xml("g") + "\n" + xml("f", n="1"), [*call("g", "{}"), *call("f", '{"n": 1}')]),
    "call, text": (xml("g") + "\nDone.\n", [*call("g", "{}"), Text("\nDone.\n")]),
    "a string of lines": (xml("f", s="a\n\n b\n"), call("f", '{"s": "a\\n\\n b\\n"}')),
    "an empty string": (xml("f", s=""), call("f", '{"s": ""}')),
    "an empty string on one line": (
        "<tool_call>\n<function=f>\n<parameter=s>\n</parameter>\n</function>\n</tool_call>",
        call("f", '{"s": ""}'),
    ),
    "a string that looks like JSON": (xml("f", s='{"a": 1}'), call("f", json.dumps({"s": '{"a": 1}'}))),
    "null for a string": (xml("f", s="null"), call("f", '{"s": "null"}')),
    "null": (xml("f", m="null"), call("f", '{"m": null}')),
    "text instead of null": (xml("f", m="nullable 5"), call("f", '{"m": "nullable 5"}')),
    "an object": (xml("f", o='{"a": "</parameter>"}'), call("f", '{"o": {"a": "</parameter>"}}')),
    "half an object": (xml("f", o='{"a": '), call("f", json.dumps({"o": '{"a": '}))),
    "a key twice": (xml("f", o='{"a": 1, "a": 2}'), call("f", json.dumps({"o": '{"a": 1, "a": 2}'}))),
    "not of its type": (xml("f", n="many"), call("f", '{"n": "many"}')),
    "not declared": (xml("f", x="[1, true]", y="[1, so"), call("f", '{"x": [1, true], "y": "[1, so"}')),
    "unknown tool": (xml("h", x="5", y="-"), call("h", '{"x": 5, "y": "-"}')),
    "markup in a string": (
        xml("f", s="</function>\n</tool_call>\n<tool_call>"),
        call("f", json.dumps({"s": "</function>\n</tool_call>\n<tool_call>"})),
    ),
    "blanks around tags": (
        "<tool_call> <function=g>\n\n</function> </tool_call>\n\n" + xml("g"),
        call("g", "{}") * 2,
    ),
    "a name twice": (
        "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=n>\n2\n</parameter>",
        [
            CallBegin("f"),
            CallArguments('{"n": 1'),
            Text("<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=n>"),
            Text("\n2\n</parameter>"),
        ],
    ),
    "JSON instead": (
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        [Text('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')],
    ),
    "no name": ("<tool_call>\n<function=>\n", [Text("<tool_call>\n<function=>\n")]),
    "a fault, then a call": ("<tool_call>\n<fun>" + xml("g"), [Text("<tool_call>\n<fun>"), *call("g", "{}")]),
    "reasoning": ("<think>\nHm <tool_call>\n</think>\n\n" + xml("g"), [Reasoning("Hm <tool_call>"), *call("g", "{}")]),
}
JSON: dict[str, tuple[str, list[Parsed]]] = {
    "reasoning, text, call": (
        '<think>\nHm\n</think>\n\nSo:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        [Reasoning("Hm"), Text("So:"), *call("f", '{"a": 1}')],
    ),
    "a stray end": ("a</think>b</tool_call>", [Text("a</think>b</tool_call>")]),
}
LLAMA: dict[str, tuple[str, list[Parsed]]] = {
    "text": ('Hello {"name": "f", "parameters": {}}', [Text('Hello {"name": "f", "parameters": {}}')]),
    "a call": (lama("f", '{"a": 1}'), call("f", '{"a": 1}')),
    "a call behind blanks": ("\n\n" + lama("f"), call("f", "{}")),
    "behind the tag": ("<|python_tag|>" + lama("f"), call("f", "{}")),
    "text, tag, call": ("So: <|python_tag|>\n" + lama("f"), [Text("So: "), *call("f", "{}")]),
    "several": (
        lama("f") + "; " + lama("g") + ";\n" + lama("f"),
        [*call("f", "{}"), *call("g", "{}"), *call("f", "{}")],
    ),
    "tags between": (lama("f") + "<|python_tag|>" + lama("g"), [*call("f", "{}"), *call("g", "{}")]),
    "call, text": (lama("f") + "\nDone; {}", [*call("f", "{}"), Text("\nDone; {}")]),
    "no separator": (lama("f") + lama("g"), [*call("f", "{}"), Text(lama("g"))]),
    "a separator, then text": (lama("f") + "; so", [*call("f", "{}"), Text("; so")]),
    "an answer in JSON": ('{"name": "Bob", "age": 3}', [Text('{"name": "Bob", "age": 3}')]),
    "another tool": (lama("h"), [Text(lama("h"))]),
    "other keys": ('{"type": "function", "name": "f"}', [Text('{"type": "function", "name": "f"}')]),
    "code": ("<|python_tag|>print(1)", [Text("<|python_tag|>print(1)")]),
    "late fault": (
        '{"name": "f", "parameters": {}, "x": 1} end',
        [CallBegin("f"), CallArguments("{}"), Text('{"name": "f", "parameters": {}, "x": 1} end')],
    ),
    "markup in a string": (lama("f", '{"a": "}; <|python_tag|>{"}'), call("f", '{"a": "}; <|python_tag|>{"}')),
    "blanks only behind": (lama("f") + " \n", call("f", "{}")),
}
CASES = [
    *(("qwen3_xml", case) for case in XML),
    *(("qwen3", case) for case in JSON),
    *(("llama3_json", case) for case in LLAMA),
]
_CASES = {"qwen3_xml": XML, "qwen3": JSON, "llama3_json": LLAMA}


def reader(name: str, *, inside: bool = False, markup: Markup = "free") -> OutputParser:
    output = OutputSpec(name, parse_calls=True, markup=markup, starts_in_reasoning=inside, tools=TOOLS)
    return load_format(name).parser(output)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_what_is_read(name: str, case: str) -> None:
    text, pieces = _CASES[name][case]
    tokens = [token_bytes(name)[token] or b"" for token in tokenizer(name).encode(text)]
    ways = ([text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)], [piece.decode() for piece in tokens])
    for way in ways:
        assert parse(reader(name), *way) == merged(list(pieces))


PARTS = {
    "qwen3_xml": [
        *'<>/ \na5{"',
        "<tool_call>",
        "<function=f>\n",
        "<parameter=s>\n",
        "<parameter=o>\n",
        "\n</parameter>",
        "</function>",
        "</tool_call>",
        xml("f", s="x", n="1"),
        "<think>",
        "</think>",
    ],
    "qwen3": ['<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "\n", "<think>", "</think>", "<", "a"],
    "llama3_json": [*' \n;{}a"', lama("f"), lama("h"), "<|python_tag|>", "<|py", '{"name": "f", "parameters": ', "; "],
}


MARKUPS: tuple[Markup, ...] = ("free", "guarded", "calls")


@pytest.mark.parametrize("name", PARTS)
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_chunking_gives_the_same_pieces(name: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PARTS[name]), max_size=9)))
    markup = data.draw(st.sampled_from(MARKUPS))
    inside = data.draw(st.booleans()) and name != "llama3_json"
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    chunks = [text[start:end] for start, end in pairwise([0, *sorted(cuts), len(text)])]
    whole = parse(reader(name, inside=inside, markup=markup), text)
    assert whole == parse(reader(name, inside=inside, markup=markup), *text)
    assert whole == parse(reader(name, inside=inside, markup=markup), *chunks)
    _check_order(whole)


def _check_order(pieces: list[Parsed]) -> None:
    """A call's pieces stand together, and what is finished is one JSON object."""
    arguments: str | None = None
    for piece in pieces:
        match piece:
            case CallBegin():
                arguments = ""
            case CallArguments(text):
                assert arguments is not None
                arguments += text
            case CallFinished():
                assert arguments is not None
                assert isinstance(json.loads(arguments), dict)
                arguments = None
            case _:
                arguments = None


@pytest.mark.parametrize(
    ("name", "text"), [("qwen3_xml", xml("f", s="abc", o='{"a": 1}')), ("llama3_json", lama("f", '{"a": "b"}'))]
)
def test_a_cut_call_is_never_finished(name: str, text: str) -> None:
    for end in range(len(text)):
        pieces = merged([*(parser := reader(name)).feed(text[:end]), *parser.flush("length")])
        assert CallFinished() not in pieces
        if not any(isinstance(piece, CallBegin) for piece in pieces):
            assert pieces == ([Text(text[:end])] if end else [])
        parser = reader(name, markup="calls")
        assert not any(isinstance(piece, Text) for piece in [*parser.feed(text[:end]), *parser.flush("length")])


def test_strings_stream_and_values_wait() -> None:
    parser = reader("qwen3_xml")
    assert list(parser.feed("<tool_call>\n<function=f>\n<parameter=s>\nab")) == [
        CallBegin("f"),
        CallArguments("{"),
        CallArguments('"s": '),
        CallArguments('"ab'),
    ]
    assert list(parser.feed('c"\n</param')) == [CallArguments('c\\"')]
    assert list(parser.feed("s>")) == [CallArguments("\\n</params>")]
    assert list(parser.feed("\n</parameter>\n</fun")) == [CallArguments('"')]
    parser = reader("qwen3_xml")
    parser.feed("<tool_call>\n<function=f>\n<parameter=o>\n")
    assert list(parser.feed('{"a": ')) == []
    assert list(parser.feed("1}\n</parameter>")) == [CallArguments('{"a": 1}')]
    assert merged(list(parser.feed("\n<parameter=m>\nabc"))) == [CallArguments(', "m": "abc')]


def test_without_tools_markup_is_text() -> None:
    for name, text in (("qwen3_xml", xml("f")), ("llama3_json", lama("f"))):
        parser = load_format(name).parser(OutputSpec(name))
        assert parse(parser, *text) == [Text(text)]


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"type": "boolean"}, {"true", "false"}),
        ({"enum": [1, "a", None, 2.5, True]}, {"string", "null", "number", "true"}),
        ({"anyOf": [{"type": "integer"}, {"const": "a"}]}, {"integer", "string"}),
        ({"$ref": "#/$defs/x~1y"}, {"array"}),
        ({"allOf": [{"type": ["string", "number"]}, {"type": ["integer", "string"]}]}, {"string", "integer"}),
        ({"$ref": "#/$defs/loop"}, ANY),
        ({"$ref": "http://x"}, ANY),
        ({}, ANY),
        (True, ANY),
        ({"type": 5}, ANY),
        ({"type": "date"}, ANY),
    ],
)
def test_types_of_a_schema(schema: object, types: set[str]) -> None:
    root = {"$defs": {"x/y": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert types_of(schema, root) == types


@pytest.mark.parametrize("text", ["1e999", "NaN", "-", "01", '"a"', " 1", "1 ", '{"a": "\\ud800"}', "[" * 100_000, ""])
def test_what_is_no_json_is_text(text: str) -> None:
    assert json_text(text, ANY) == json.dumps(text)


def test_a_key_twice_is_text_only_where_text_may_stand() -> None:
    twice = '{"a": 1, "a": 2}'
    assert json_text(twice, frozenset(("object",))) == twice
    assert json_text(twice, frozenset(("object", "string"))) == json.dumps(twice)


def test_the_types_travel_with_the_plan() -> None:
    plan = GenerationRequest((1,), OutputSpec("qwen3_xml", tools=TOOLS), "m", 5)
    assert GenerationRequest.from_json(plan.to_json(), (1,)) == plan
    for wrong in ([1], {"f": 1}, {"f": {"s": 1}}, {"f": ["s"]}):
        text = json.dumps(json.loads(plan.to_json()) | {"output": {"format": "qwen3_xml", "tools": wrong}})
        with pytest.raises(RequestError, match=r"`output\.tools"):
            GenerationRequest.from_json(text, (1,))
