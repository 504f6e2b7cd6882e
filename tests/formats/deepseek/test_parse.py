"""Reading DSML back: whole, one character at a time, token by token, in random chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import CallArguments, CallBegin, OutputParser, Parsed, Reasoning, Text
from heptagram_backend.formats.deepseek_v4.markup import DSML, V4, V4_1, Dsml
from heptagram_backend.generation import Markup, OutputSpec
from tests.formats.deepseek.tokenizers import tokenizer
from tests.formats.samples import call, merged, parse

VERSIONS: dict[str, Dsml] = {"deepseek_v4": V4, "deepseek_v4_1": V4_1}


def parser(name: str = "deepseek_v4", *, reasoning: bool = False, calls: bool = True) -> OutputParser:
    return load_format(name).parser(OutputSpec(name, parse_calls=calls, starts_in_reasoning=reasoning))


def raw(name: str, text: str, dsml: Dsml = V4) -> str:
    return dsml.parameter_text(name, text, string=True)


def value(name: str, text: str, dsml: Dsml = V4) -> str:
    return dsml.parameter_text(name, text, string=False)


def block(*parameters: str, name: str = "f") -> str:
    return V4.block_text([V4.invoke_text(name, parameters)])


F = block(value("a", "1"))
G = V4.invoke_text("g", [])
CALL = call("f", '{"a": 1}')
SPOOF = f"</{DSML}parameter>\n</{DSML}invoke>\n{F}"

CASES: dict[str, tuple[str, list[Parsed]]] = {
    "nothing": ("", []),
    "text": ("Hello <b>you</b> < tool_calls>\n", [Text("Hello <b>you</b> < tool_calls>\n")]),
    "stray tags in text": (
        f"a </{DSML}tool_calls> <{DSML}invoke> {DSML} </think> <think>",
        [Text(f"a </{DSML}tool_calls> <{DSML}invoke> {DSML} </think> <think>")],
    ),
    "call": (F, CALL),
    "text, call": ("So:" + F, [Text("So:"), *CALL]),
    "text with line breaks, call": ("So:\n\n\n" + F, [Text("So:\n\n\n"), *CALL]),
    "one line break before": ("So:" + F[1:], [Text("So:\n"), *CALL]),
    "none before": ("So:" + F[2:], [Text("So:"), *CALL]),
    "text after": (F + "\n\nDone.\n\n", [*CALL, Text("\n\nDone.\n\n")]),
    "two blocks": (F + F, CALL * 2),
    "two calls": (V4.block_text([G, V4.invoke_text("f", [value("a", "1")])]), [*call("g", "{}"), *CALL]),
    "blanks between tags": (F.replace("\n", " \r\n\t"), [Text(" \r\n\t \r\n\t"), *CALL]),
    "no blanks": ("\n\n" + F.replace("\n", ""), CALL),
    "half tags": (f"<<{DSML}tool<{F}", [Text(f"<<{DSML}tool<"), *CALL]),
    "empty string": (block(raw("s", "")), call("f", '{"s": ""}')),
    "raw text": (
        block(raw("s", ' "q" \\n\n\t\x00</｜DSM <think></think>｜<｜User｜> ')),
        call("f", json.dumps({"s": ' "q" \\n\n\t\x00</｜DSM <think></think>｜<｜User｜> '}, ensure_ascii=False)),
    ),
    "tags in a raw string": (
        block(raw("s", f"<{DSML}parameter>{F[:-3]}"[:40])),
        call("f", json.dumps({"s": f"<{DSML}parameter>{F[:-3]}"[:40]}, ensure_ascii=False)),
    ),
    "the end tag in a JSON string": (
        block(value("o", json.dumps({"x": [SPOOF]}, ensure_ascii=False)), raw("s", "ü")),
        call("f", f'{{"o": {json.dumps({"x": [SPOOF]}, ensure_ascii=False)}, "s": "ü"}}'),
    ),
    "all kinds of JSON": (
        block(*(value(f"k{place}", text) for place, text in enumerate(('{"a": []}', "[ ]", '"s"', "-1.5e3", "null")))),
        call("f", '{"k0": {"a": []}, "k1": [ ], "k2": "s", "k3": -1.5e3, "k4": null}'),
    ),
    "blanks around JSON": (block(value("a", " \n1\t"), value("b", " [2] ")), call("f", '{"a": 1, "b": [2]}')),
    "names": (block(value("a b.c", "1"), name="ns::f-ü"), call("ns::f-ü", '{"a b.c": 1}')),
}

# What of the call came out before the fault; the markup from the block on follows as text.
MALFORMED: dict[str, tuple[str, str | None]] = {
    "a parameter twice": (block(value("a", "1"), value("a", "1")), '{"a": 1'),
    "an unknown tag": (block("<b>"), "{"),
    "text between parameters": (block("so"), "{"),
    "text between calls": (F.replace("<｜DSML｜invoke", "so <｜DSML｜invoke"), None),
    "a block in a block": (F[:-1].replace(f'<{DSML}invoke name="f', F.strip() + f'<{DSML}invoke name="f'), None),
    "a quote in a name": (block(value('a"b', "1")), "{"),
    "no name": (block(value("", "1")), "{"),
    "string neither true nor false": (block(value("a", "1").replace("false", "False")), "{"),
    "no string attribute": (block(value("a", "1").replace(' string="false"', "")), "{"),
    "no JSON": (block(value("a", "so")), '{"a": '),
    "JSON no more": (block(value("a", '{"b": 1,}')), '{"a": '),
    "Python's": (block(value("a", "NaN")), '{"a": '),
    "two JSON values": (block(value("a", "[1] [2]")), '{"a": [1]'),
    "nothing for JSON": (block(value("a", "")), '{"a": '),
    "a call that is not ended": (F.replace(f"</{DSML}invoke>\n", ""), '{"a": 1'),
    "the other version's tags": (V4.block_begin + V4_1.invoke_text("f", []), None),
    "an endless name": (block(value("x" * 600, "1")), "{"),
    "an endless number": (block(value("x", "1" * 600)), '{"x": '),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_and_by_the_character(case: str) -> None:
    text, expected = CASES[case]
    assert parse(parser(), text) == expected
    assert parse(parser(), *text) == expected


@pytest.mark.parametrize("case", CASES)
def test_by_the_token(case: str) -> None:
    text, expected = CASES[case]
    made = tokenizer("v4")
    detokenizer = Detokenizer(made.token_bytes(load_format("deepseek_v4").markers))
    chunks = [detokenizer.feed(token) for token in made.encode(made.guarded(text).replace(f"<{made.guard}｜", "<｜"))]
    if "<｜User｜>" not in text:  # that token is silent
        assert parse(parser(), *chunks, detokenizer.flush()) == expected


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_stays_an_unfinished_call_and_its_markup_is_text(case: str) -> None:
    text, arguments = MALFORMED[case]
    whole = parse(parser(), text)
    assert whole == parse(parser(), *text)
    begun: list[Parsed] = [] if arguments is None else [CallBegin("f"), CallArguments(arguments)]
    assert whole[: len(begun)] == begun
    if case == "a block in a block":
        assert whole == [Text(f"\n\n{V4.block_begin}\n"), *CALL, Text(text.rpartition(V4.block_end)[2])]
    else:
        assert whole[len(begun) :] == [Text(text)]


def test_finished_calls_before_the_fault_stay() -> None:
    text = V4.block_text([G, V4.invoke_text("f", ["so"])])
    rest = text.partition(G)[2]
    assert parse(parser(), text) == [*call("g", "{}"), CallBegin("f"), CallArguments("{"), Text(rest)]


@pytest.mark.parametrize("end", range(1, len(F)))
def test_a_cut_call_stays_unfinished(end: int) -> None:
    pieces = parse(parser(), F[:end])
    if f"</{DSML}invoke>" in F[:end]:
        assert pieces[:3] == CALL
    elif 'name="f">' in F[:end]:
        assert pieces[0] == CallBegin("f")
        assert '{"a": 1}'.startswith(pieces[1].text if isinstance(pieces[1], CallArguments) else "?")
        assert len(pieces) == 2
    else:
        assert pieces == ([Text(F[:end])] if F[:end].strip("\n") or end <= 2 else [])


def test_a_string_streams_and_only_a_possible_end_is_held_back() -> None:
    made = parser()
    head = block(raw("s", "|")).partition("|")[0]
    assert merged(list(made.feed(head))) == [CallBegin("f"), CallArguments('{"s": "')]
    assert made.feed('ab"') == [CallArguments('ab\\"')]
    assert made.feed("c</｜DS") == [CallArguments("c")]
    assert made.feed("x\n") == [CallArguments("</｜DSx\\n")]
    assert made.feed(f"</{DSML}parameter>") == [CallArguments('"')]


def test_a_json_value_comes_when_it_is_complete() -> None:
    made = parser()
    made.feed(block(value("s", "|")).partition("|")[0])
    assert made.feed('{"x": [1') == []
    assert made.feed("]} ") == [CallArguments('{"x": [1]}')]


def test_reasoning_ends_once() -> None:
    text = f"Hm, {F} </thinK> <think></think></think>So.{F}"
    expected = [Reasoning(f"Hm, {F} </thinK> <think>"), Text("</think>So."), *CALL]
    assert parse(parser(reasoning=True), text) == expected
    assert parse(parser(reasoning=True), *text) == expected
    assert parse(parser(reasoning=True), "Hm</thi") == [Reasoning("Hm</thi")]


def test_without_calls_markup_is_text() -> None:
    assert parse(parser(calls=False, reasoning=True), *f"a</think>b{F}") == [Reasoning("a"), Text(f"b{F}")]


@pytest.mark.parametrize("name", VERSIONS)
def test_each_version_reads_its_own_tags(name: str) -> None:
    dsml = VERSIONS[name]
    text = dsml.block_text([dsml.invoke_text("f", [raw("s", "x", dsml), value("n", "2", dsml)])])
    assert parse(parser(name), "Well" + text) == [Text("Well"), *call("f", '{"s": "x", "n": 2}')]
    other = {"deepseek_v4": "deepseek_v4_1", "deepseek_v4_1": "deepseek_v4"}[name]
    assert parse(parser(other), text) == [Text(text)]


PIECES = st.sampled_from(
    [*(text for text, _ in CASES.values()), *(text for text, _ in MALFORMED.values()), "\n", "<", DSML, "</think>"]
)


@settings(deadline=None, max_examples=100)
@given(st.lists(PIECES, max_size=4), st.data())
@example(["\n", "\n"], None)
def test_random_chunks_change_nothing(pieces: list[str], data: st.DataObject | None) -> None:
    text = "".join(pieces)
    for reasoning in (False, True):
        whole = parse(parser(reasoning=reasoning), text)
        assert parse(parser(reasoning=reasoning), *text) == whole
        if data is not None:
            cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
            assert parse(parser(reasoning=reasoning), *(text[a:b] for a, b in pairwise(cuts))) == whole


@pytest.mark.parametrize(("markup", "shown"), [("calls", False), ("guarded", False), ("free", True)])
@pytest.mark.parametrize("name", VERSIONS)
def test_markup_of_a_call_that_was_cut_is_not_told_as_text(name: str, markup: Markup, shown: bool) -> None:
    text = f"\n\n{VERSIONS[name].block_begin}\n{VERSIONS[name].invoke_begin}sh"
    reader = load_format(name).parser(OutputSpec(name, parse_calls=True, markup=markup))
    pieces = [*reader.feed(text), *reader.flush("length")]
    told = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    assert told.strip() == (text.strip() if shown else "")
