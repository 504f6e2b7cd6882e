"""Reasoning in front of an answer: read back, and watched for where the template leaves it to the model."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.formats.base import Parsed, Reasoning, Text
from heptagram_backend.formats.hermes.parse import PlainParser
from heptagram_backend.formats.reasoning import ReasoningParser
from heptagram_backend.trigger import TriggerWatch
from tests.formats.samples import merged, parse

CASES: dict[str, tuple[bool, str, list[Parsed]]] = {
    "inside": (True, "Hm\nso\n</think>\n\nYes.\n", [Reasoning("Hm\nso"), Text("Yes.\n")]),
    "opened": (False, "<think>\nHm</think>Yes", [Reasoning("Hm"), Text("Yes")]),
    "empty": (False, "<think>\n\n</think>\n\nYes", [Text("Yes")]),
    "none": (False, "Yes <think>no</think>", [Text("Yes <think>no</think>")]),
    "a line break first": (False, "\n<think>no", [Text("\n<think>no")]),
    "half a tag": (False, "<thin", [Text("<thin")]),
    "not the tag": (False, "<thing>", [Text("<thing>")]),
    "a second end": (True, "a</think></think>b", [Reasoning("a"), Text("</think>b")]),
    "half an end": (True, "a\n</thin", [Reasoning("a\n</thin")]),
    "half an end, then more": (True, "a\n</thin b", [Reasoning("a\n</thin b")]),
    "a tag inside": (True, "<think>a</think>", [Reasoning("<think>a")]),
    "nothing": (False, "", []),
    "nothing behind": (True, "a</think>\n\n", [Reasoning("a")]),
}


def reader(inside: bool) -> ReasoningParser:
    return ReasoningParser(PlainParser(), begin="<think>", end="</think>", inside=inside)


@pytest.mark.parametrize("case", CASES)
def test_what_is_read(case: str) -> None:
    inside, text, pieces = CASES[case]
    ways = ([text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)])
    assert [parse(reader(inside), *way) for way in ways] == [pieces] * 3


def test_reasoning_streams() -> None:
    parser = reader(True)
    assert list(parser.feed("\n\nLet me")) == [Reasoning("Let me")]
    assert list(parser.feed(" see\n")) == [Reasoning(" see")]
    assert list(parser.feed("</th")) == []
    assert merged([*parser.feed("e")]) == [Reasoning("\n</the")]


_PARTS = st.lists(st.sampled_from(["<think>", "</think>", "\n", "<", "</", "a", "think>"]), max_size=8).map("".join)


@settings(deadline=None, max_examples=200)
@given(st.booleans(), _PARTS, st.lists(st.integers(0, 1 << 16), max_size=5))
def test_any_chunking_gives_the_same_pieces(inside: bool, text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in pairwise(edges)]
    assert parse(reader(inside), *chunks) == parse(reader(inside), text) == parse(reader(inside), *text)


def fires(text: str, size: int) -> int | None:
    """Where the watch finds ``<call>`` in ``text``, given in pieces of ``size`` bytes; ``None`` for nowhere."""
    watch, data = TriggerWatch("<call>", after="</think>", opening="<think>"), text.encode()
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        before = watch.completes(piece)
        if before is not None:
            return (data[: start + size]).rindex(b"<call>")
        watch.advance(piece)
    return None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_trigger_counts_behind_reasoning_that_the_answer_opened(size: int) -> None:
    assert fires("<think>a <call> b</think>\n<call>", size) == 26
    assert fires("<think>a <call> b", size) is None
    assert fires("ab <call> <think>", size) == 3
    assert fires("<thin <call>", size) == 6
    assert fires("<call>", size) == 0
    assert fires(" <think> <call>", size) == 9
