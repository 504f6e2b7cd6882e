"""Reading calls back: whole, one character at a time, in random chunks."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed, Text
from heptagram_backend.formats.chatml_json import ChatMLJson
from heptagram_backend.formats.hermes.markup import call_text, canonical_arguments
from heptagram_backend.generation import OutputSpec
from tests.formats.samples import call, merged, parse

CALLS = OutputSpec("chatml_json", parse_calls=True)
F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
SPOOF = '{"x": "}\\n</tool_call> <tool_call>\\n{\\"name\\": \\"g\\", \\"arguments\\": {}}", "y": "\\\\"}'

CASES: dict[str, tuple[str, list[Parsed]]] = {
    "nothing": ("", []),
    "text": ("Hello <b>you</b> < tool_call>", [Text("Hello <b>you</b> < tool_call>")]),
    "call": (F, call("f", '{"a": 1}')),
    "text, call": ("So:\n" + F, [Text("So:\n"), *call("f", '{"a": 1}')]),
    "two calls": (F + "\n" + F, call("f", '{"a": 1}') * 2),
    "two calls without a blank": (F + F, call("f", '{"a": 1}') * 2),
    "blanks around": (F + "\r\n\t " + F + "\n\n", call("f", '{"a": 1}') * 2),
    "call, text": (F + "\nDone.", [*call("f", '{"a": 1}'), Text("\nDone.")]),
    "call, text, call": (F + " and " + F, [*call("f", '{"a": 1}'), Text(" and "), *call("f", '{"a": 1}')]),
    "call, half a tag": (F + "\n<tool", [*call("f", '{"a": 1}'), Text("\n<tool")]),
    "half tags": ("<<tool_<tool_call" + F, [Text("<<tool_<tool_call"), *call("f", '{"a": 1}')]),
    "markup in a string": (call_text("f", SPOOF), call("f", SPOOF)),
    "parameters name and arguments": (
        call_text("run", '{"name": "x", "arguments": {"arguments": [], "name": {}}}'),
        call("run", '{"name": "x", "arguments": {"arguments": [], "name": {}}}'),
    ),
    "any JSON blanks": (
        '<tool_call> {"name"\t:"f" ,\n"arguments":{ "a":\n1 } }</tool_call>',
        call("f", '{ "a":\n1 }'),
    ),
    "arguments first": ('<tool_call>{"arguments": {"a": [2]}, "name": "f"}</tool_call>', call("f", '{"a": [2]}')),
    "escaped name": (call_text('a"b\\é', "{}"), call('a"b\\é', "{}")),
}

MALFORMED = {
    "double-encoded arguments": '<tool_call>\n{"name": "f", "arguments": "{}"}\n</tool_call>',
    "no arguments": '<tool_call>\n{"name": "f"}\n</tool_call>',
    "no name": '<tool_call>\n{"arguments": {}}\n</tool_call>',
    "arguments null": '<tool_call>\n{"name": "f", "arguments": null}\n</tool_call>',
    "another key": '<tool_call>\n{"id": 1, "name": "f", "arguments": {}}\n</tool_call>',
    "name twice": '<tool_call>\n{"name": "f", "name": "g"}\n</tool_call>',
    "a list of calls": '<tool_call>\n[{"name": "f", "arguments": {}}]\n</tool_call>',
    "single quotes": "<tool_call>\n{'name': 'f', 'arguments': {}}\n</tool_call>",
    "name no string": '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>',
    "a name that is no text": '<tool_call>\n{"name": "\\ud83d", "arguments": {}}\n</tool_call>',
    "cut": '<tool_call>\n{"name": "f',
}
LATE = {
    "broken arguments": ('<tool_call>{"name": "f", "arguments": {"a": oops}}</tool_call>', '{"a": '),
    "a third key": ('<tool_call>{"name": "f", "arguments": {}, "id": 1}</tool_call>', "{}"),
    "no end tag": ('<tool_call>{"name": "f", "arguments": {}}</tool_cal>', "{}"),
    "another object": ('<tool_call>{"name": "f", "arguments": {}}{}</tool_call>', "{}"),
}


def chunked(text: str) -> list[list[Parsed]]:
    """The merged pieces of ``text`` fed whole, one character at a time, and in threes."""
    parser = ChatMLJson().parser
    ways = ([text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)])
    return [parse(parser(CALLS), *way) for way in ways]


@pytest.mark.parametrize("case", CASES)
def test_what_is_read(case: str) -> None:
    text, pieces = CASES[case]
    assert chunked(text) == [pieces] * 3


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_call_is_text(case: str) -> None:
    text = MALFORMED[case]
    assert chunked("x " + text) == [[Text("x " + text)]] * 3
    if case != "cut":
        assert chunked(text + "\n" + F) == [[Text(text + "\n"), *call("f", '{"a": 1}')]] * 3


@pytest.mark.parametrize("case", LATE)
def test_a_call_that_breaks_late_stays_unfinished_and_is_text(case: str) -> None:
    text, given = LATE[case]
    assert chunked(text + F) == [[CallBegin("f"), CallArguments(given), Text(text), *call("f", '{"a": 1}')]] * 3


@pytest.mark.parametrize("end", range(len(F)))
def test_a_cut_call_is_never_finished(end: int) -> None:
    parser = ChatMLJson().parser(CALLS)
    pieces = merged([*parser.feed(F[:end]), *parser.flush("length")])
    assert CallFinished() not in pieces
    if not any(isinstance(piece, CallBegin) for piece in pieces):
        assert pieces == ([Text(F[:end])] if end else [])


def test_arguments_stream_as_they_come() -> None:
    parser = ChatMLJson().parser(CALLS)
    assert list(parser.feed('Hm <tool_call>\n{"name": "f", ')) == [Text("Hm ")]
    assert list(parser.feed('"arguments": {"a')) == [CallBegin("f"), CallArguments('{"a')]
    assert list(parser.feed('bc": "')) == [CallArguments('bc": "')]
    assert list(parser.feed('x"}')) == [CallArguments('x"}')]
    assert list(parser.feed("}\n</tool_call")) == []
    assert list(parser.feed(">")) == [CallFinished()]


def test_text_is_held_back_no_longer_than_a_tag_could_be() -> None:
    parser = ChatMLJson().parser(CALLS)
    assert list(parser.feed("a <tool_")) == [Text("a ")]
    assert list(parser.feed("x <")) == [Text("<tool_x ")]
    assert list(parser.feed(" ")) == [Text("< ")]


def test_without_calls_markup_is_text() -> None:
    parser = ChatMLJson().parser(OutputSpec("chatml_json"))
    assert parse(parser, "a", F[:5], F[5:], "") == [Text("a" + F)]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
plain_text = st.lists(st.sampled_from([*'<>/tol_ca"{}\n \\', "<tool_call>", "</tool_call>"]), max_size=9).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | plain_text,
    lambda v: st.lists(v) | st.dictionaries(names, v),
    max_leaves=6,
)
calls = st.builds(
    lambda name, value: call_text(name, json.dumps(value)), names, st.dictionaries(names, json_values, max_size=3)
)


@settings(deadline=None, max_examples=200)
@given(st.lists(calls | plain_text, max_size=5).map("".join), st.lists(st.integers(0, 1 << 16), max_size=6))
def test_any_chunking_gives_the_same_pieces(text: str, cuts: list[int]) -> None:
    whole, single, threes = chunked(text)
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in pairwise(edges)]
    assert whole == single == threes == parse(ChatMLJson().parser(CALLS), *chunks)
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


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(names, st.dictionaries(names, json_values, max_size=3)), max_size=4))
def test_what_is_rendered_is_read_back(sent: list[tuple[str, dict[str, Any]]]) -> None:
    texts = [canonical_arguments(json.dumps(value, separators=(",", ":"))) for _, value in sent]
    answer = "\n".join(call_text(name, text) for (name, _), text in zip(sent, texts, strict=True))
    expected = [piece for (name, _), text in zip(sent, texts, strict=True) for piece in call(name, text)]
    assert parse(ChatMLJson().parser(CALLS), answer) == expected
    assert [json.loads(text) for text in texts] == [value for _, value in sent]
