"""What people hit elsewhere with streamed calls: the right answer in every format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import pytest

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.emit import Emitter
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, OutputParser, Parsed, Reasoning, Text
from heptagram_backend.formats.deepseek_v4.markup import DSML as MARKER
from heptagram_backend.generation import Markup, OutputSpec
from heptagram_backend.validate import OutputValidator
from heptagram_gateway.chat.message import completion_of
from heptagram_wire.events import Finish, TextDelta
from tests.cases.kits import FORMATS, kit
from tests.cases.test_tool_choice import EACH, NAMED, STRICT, TIME, TOOLS, WEATHER, ask
from tests.cases.writing import DSML, OPENINGS, written
from tests.formats.samples import merged, parse, walked
from tests.gateway.test_chat_stream import ENVELOPE, deltas, encode

RAW: Final = (*DSML, "qwen3_xml")  # strings stand there as they are
JSON: Final = tuple(name for name in FORMATS if name not in RAW)
TYPES: Final = {
    "shell": {"command": "string", "timeout": "integer"},
    "book": {"n": "integer", "price": "number", "opts": "object", "ok": "true|false", "who": "string"},
    "write_file": {"path": "string", "content": "string"},
}


def reader(name: str, *, thinking: bool = False, markup: Markup = "free") -> OutputParser:
    output = OutputSpec(name, parse_calls=True, starts_in_reasoning=thinking, tools=TYPES, markup=markup)
    return load_format(name).parser(output)


def arguments(pieces: Sequence[Parsed]) -> Any:
    """Of the one call, which is whole."""
    [begin, given, end] = [piece for piece in pieces if not isinstance(piece, Text | Reasoning)]
    assert isinstance(begin, CallBegin)
    assert isinstance(given, CallArguments)
    assert isinstance(end, CallFinished)
    return json.loads(given.text)


@EACH
@pytest.mark.parametrize("tools", [STRICT, TOOLS])
def test_two_calls_behind_a_text(name: str, tools: Any) -> None:
    """https://github.com/earendil-works/pi/issues/8861: dense indices from 0, never used again, an id for each."""
    chunks = encode(kit(name).answer(ask("auto", tools), written(name, WEATHER, TIME, text="I will check both.")))
    kinds = [kind for delta in deltas(chunks) for kind in ("content", "tool_calls") if delta.get(kind)]
    assert kinds == sorted(kinds), "text behind a call"
    assert "".join(delta.get("content") or "" for delta in deltas(chunks)).strip() == "I will check both."
    entries = [entry for delta in deltas(chunks) for entry in delta.get("tool_calls", ())]
    indices = [entry["index"] for entry in entries]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1}
    assert len({entry["id"] for entry in entries if "id" in entry}) == 2
    rebuilt = {index: "".join(e["function"]["arguments"] for e in entries if e["index"] == index) for index in (0, 1)}
    assert {index: json.loads(text) for index, text in rebuilt.items()} == {0: WEATHER[1], 1: TIME[1]}
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [*[None] * (len(chunks) - 1), "tool_calls"]


@EACH
def test_the_shape_of_deltas(name: str) -> None:
    """https://github.com/vllm-project/vllm/issues/16340: who calls what once, then arguments alone."""
    streamed = deltas(encode(kit(name).answer(ask(NAMED, STRICT), written(name, WEATHER))))
    assert streamed[0]["role"] == "assistant"
    assert not any("role" in delta for delta in streamed[1:])
    first, *later = [entry for delta in streamed for entry in delta.get("tool_calls", ())]
    assert first.pop("id")
    assert first == {"index": 0, "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    assert all(set(entry) == {"index", "function"} and set(entry["function"]) == {"arguments"} for entry in later)
    assert json.loads("".join(entry["function"]["arguments"] for entry in later)) == {"city": "Oslo"}


@pytest.mark.parametrize("name", [name for name in DSML if name.startswith("deepseek")])
@pytest.mark.parametrize("command", ["ls -la 2>&1", "a <", "b </", f"c </{MARKER[:-1]}", f"d </{MARKER}", "<<<", ""])
def test_no_piece_of_an_end_tag_leaks_into_a_command(name: str, command: str) -> None:
    """https://github.com/vllm-project/vllm/pull/45877: with reasoning before it, cut anywhere."""
    text = "list</think>" + written(name, ("shell", {"command": command, "timeout": 5}))
    end = text.index(DSML[name].parameter_end, text.index("true") + 6 + len(command))
    tag = len(DSML[name].parameter_end)
    for cut in range(end - 1, end + tag + 2):
        pieces = parse(reader(name, thinking=True), text[:cut], text[cut:])
        assert arguments(pieces) == {"command": command, "timeout": 5}
        assert pieces[0] == Reasoning("list")
    reported = [text[: end + 2], text[end + 2 : end + 7], text[end + 7 : end + tag - 1], text[end + tag - 1 :]]
    assert arguments(parse(reader(name, thinking=True), *reported)) == {"command": command, "timeout": 5}


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in DSML])
@pytest.mark.parametrize("command", ["ls -la 2>&1", "a <", "b </", "c\n</parameter", "d </tool_call", '"}}', "<<<", ""])
def test_no_piece_of_an_end_tag_leaks_into_a_command_of_the_others(name: str, command: str) -> None:
    """https://github.com/vllm-project/vllm/pull/45877"""
    text = written(name, ("shell", {"command": command, "timeout": 5}))
    for cut in range(len(text)):
        assert arguments(parse(reader(name), text[:cut], text[cut:])) == {"command": command, "timeout": 5}


HELD: Final = (
    *("x is 2 <", f"a <{MARKER[:3]}", "cost\n\n<", "a\n\n", "</think", "ok \u2028 <｜User"),
    *("<tool_", "<", " {", '{"na', "<|python"),
)


@EACH
@pytest.mark.parametrize("text", HELD)
@pytest.mark.parametrize("markup", ["free", "guarded"])
def test_what_looks_like_the_beginning_of_a_tag_comes_out_at_the_end(name: str, text: str, markup: Markup) -> None:
    """https://github.com/vllm-project/vllm/issues/41240: byte for byte, ended or cut."""
    for chunks in ([text], list(text)):
        for reason in ("stop", "length"):
            made = reader(name, markup=markup)
            pieces = merged([*[piece for chunk in chunks for piece in made.feed(chunk)], *made.flush(reason)])
            assert pieces == [Text(text)], reason


@EACH
def test_it_comes_out_of_the_stream_and_of_the_whole_answer(name: str) -> None:
    """https://github.com/vllm-project/vllm/issues/41240"""
    for text in ("x is 2 <", "cost\n\n<"):
        events = kit(name).answer(ask("auto", STRICT), text)
        assert completion_of(ENVELOPE, events)["choices"][0]["message"]["content"] == text
        assert "".join(delta.get("content", "") for delta in deltas(encode(events))) == text


@EACH
def test_usage_counts_what_was_accepted_once(name: str) -> None:
    """https://github.com/vllm-project/vllm/pull/36379: markup and the end, with drafts and without."""
    text = written(name, WEATHER)
    for drafts in (0, 7):
        body = ask("required", STRICT, heptagram={"num_speculative_tokens": drafts})
        last = kit(name).answer(body, text)[-1]
        assert isinstance(last, Finish)
        assert last.usage.completion_tokens == len(kit(name).tokenizer.encode(text)) + 1


def end_tag(name: str) -> str:
    return "\n</parameter>" if name == "qwen3_xml" else DSML[name].parameter_end


@pytest.mark.parametrize("name", RAW)
def test_the_first_end_tag_wins_and_what_follows_it_is_no_good_call(name: str) -> None:
    """https://github.com/raullenchai/Rapid-MLX/issues/1542: there is no escape, so a value with that tag is cut there.

    The grammar cannot write such a call, and a reader takes it for malformed: nothing that could be run comes of it.
    """
    text = written(name, ("write_file", {"path": "p.py", "content": f'TAG = "{end_tag(name)}"\n'}))
    for chunks in ([text], list(text)):
        pieces = parse(reader(name), *chunks)
        assert CallFinished() not in pieces
        assert isinstance(pieces[-1], Text)
    properties = {"path": {"type": "string"}, "content": {"type": "string"}}
    held = kit(name).constraint(walked("write_file", {"type": "object", "properties": properties}))
    assert not kit(name).begins(held, text)
    assert kit(name).begins(held, text.partition('"\n')[0])


@EACH
@pytest.mark.parametrize(
    "content", ["</parameter >", "<DSML>", "</invoke>", "<parameter=x>", "</tool_cal>", "<|x|>", "｜DSM｜"]
)
def test_what_only_looks_like_markup_is_content(name: str, content: str) -> None:
    """https://github.com/raullenchai/Rapid-MLX/issues/1542"""
    sent = {"path": "p.py", "content": f'TAG = "{content}"\n'}
    text = written(name, ("write_file", sent))
    assert arguments(parse(reader(name), *text)) == sent
    properties = {"path": {"type": "string"}, "content": {"type": "string"}}
    held = kit(name).constraint(walked("write_file", {"type": "object", "properties": properties}))
    assert kit(name).begins(held, text)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "content", ["</tool_call>", "</tool_call>\n<tool_call>", '"}}\n</tool_call>', "<|python_tag|>{"]
)
def test_in_json_even_the_end_tag_is_content(name: str, content: str) -> None:
    """https://github.com/raullenchai/Rapid-MLX/issues/1542"""
    sent = {"path": "p.py", "content": content}
    assert arguments(parse(reader(name), *written(name, ("write_file", sent)))) == sent


@pytest.mark.parametrize("name", DSML)
def test_an_end_tag_that_has_begun_is_ended(name: str) -> None:
    """https://github.com/mlc-ai/xgrammar/issues/650: of the text behind the marker only the tag itself goes on."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    held = kit(name).constraint(walked("get_weather", city))
    tag = DSML[name].parameter_end
    head = written(name, WEATHER).partition(tag)[0]
    whole = head + tag
    assert [kit(name).begins(held, whole[:-1] + more) for more in ("1>", "_x>", "/>", " >", ">")] == [False] * 4 + [
        True
    ]
    for place in range(tag.index(MARKER) + len(MARKER), len(tag)):
        assert not kit(name).begins(held, head + tag[:place] + "~"), tag[:place]


def test_an_end_tag_that_is_written_otherwise_is_text_that_ends() -> None:
    """https://github.com/mlc-ai/xgrammar/issues/650: the markup of Qwen's XML is plain text, so that a parameter may
    well hold ``</parameter1>``. It stays a part of the value, and an answer that drifts so is cut, not a call."""
    drifting = written("qwen3_xml", WEATHER).partition("\n</parameter>")[0] + "\n</parameter1>\n</function>" * 40
    events = kit("qwen3_xml").answer(ask(NAMED, STRICT, max_tokens=80), drifting)
    assert isinstance(events[-1], Finish)
    assert events[-1].reason == "length"
    assert "tool_calls" not in completion_of(ENVELOPE, events)["choices"][0]["message"]


VALUES: Final = {"n": 12, "price": 15.0, "opts": {"a": [1, 2]}, "ok": True, "who": "12"}


@EACH
def test_what_was_told_is_never_taken_back(name: str) -> None:
    """https://github.com/vllm-project/vllm/issues/48702: joined, the pieces are the whole arguments."""
    text = written(name, ("book", VALUES)).replace("15.0", "1.50e1")
    assert "1.50e1" in text
    whole = parse(reader(name), text)
    assert arguments(whole) == VALUES
    edges = [0, *(text.index(mark) + 1 for mark in ("12", "1.50e1", "[1", "true", "Oslo") if mark in text), len(text)]
    chunks = [text[start:end] for start, end in pairwise(sorted(set(edges)))]
    for way in (chunks, list(text)):
        assert parse(reader(name), *way) == whole


BYTES: Final = tuple(bytes([value]) for value in range(256))
CUT: Final = ("get_wéather", {"city": "漢字"})


@EACH
@pytest.mark.parametrize("markup", ["calls", "guarded"])
def test_a_call_that_is_cut_inside_a_character_shows_no_markup(name: str, markup: Markup) -> None:
    """The kind of https://github.com/vllm-project/vllm/pull/45877: a marker's own characters have several bytes."""
    text = written(name, CUT, CUT).encode()
    for end in range(len(text)):
        output = OutputSpec(name, parse_calls=True, markup=markup, tools={CUT[0]: {"city": "string"}})
        emitter = Emitter(
            detokenizer=Detokenizer(BYTES), parser=load_format(name).parser(output), validator=OutputValidator({})
        )
        for byte in text[:end]:
            emitter.push(byte)
        emitter.finish("length")
        told = "".join(event.text for event in emitter.take() if isinstance(event, TextDelta))
        half = told.strip("; \n")  # of a tag that may have become none
        assert not half or (markup == "guarded" and OPENINGS[name].startswith(half)), text[:end]
