"""Detokenizing, stop strings and the trigger: the same result whatever the chunking."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.stops import StopStrings
from heptagram_backend.trigger import TriggerWatch

SMALL_TEXT = st.text(alphabet="ab<>é", max_size=24)


@given(st.text(max_size=40))
def test_bytes_as_tokens_never_split_a_character(text: str) -> None:
    detokenizer = Detokenizer([bytes([value]) for value in range(256)])
    pieces = [detokenizer.feed(byte) for byte in text.encode()]
    assert "".join(pieces) + detokenizer.flush() == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


def test_control_tokens_and_unknown_ids_have_no_text() -> None:
    detokenizer = Detokenizer([b"a", None])
    assert [detokenizer.feed(token) for token in (0, 1, 7)] == ["a", "", ""]


def test_a_cut_character_is_replaced_at_the_end() -> None:
    detokenizer = Detokenizer([b"\xe2\x82"])
    assert detokenizer.feed(0) == ""
    assert detokenizer.flush() == "\ufffd"


@given(SMALL_TEXT, st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_a_stop_string_is_found_in_any_chunking_and_never_sent(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    matcher = StopStrings(stops)
    sent, rest = "", text
    while rest and not matcher.hit:
        size = data.draw(st.integers(1, len(rest)))
        sent += matcher.feed(rest[:size])
        rest = rest[size:]
    consumed = text[: len(text) - len(rest)]
    if not matcher.hit:
        sent += matcher.flush()
        assert sent == text
        assert not any(stop in text for stop in stops)
    else:
        assert not any(stop in sent for stop in stops)
        assert any((sent + stop) == consumed[: len(sent + stop)] for stop in stops)


def test_a_stop_string_inside_one_burst_is_trimmed() -> None:
    matcher = StopStrings(["END"])
    assert matcher.feed("fine E") == "fine "
    assert matcher.feed("NDless") == ""
    assert matcher.hit


@given(st.text(alphabet="ab<tol>é", max_size=30), st.data())
def test_the_trigger_is_found_at_its_first_place_in_any_chunking(text: str, data: st.DataObject) -> None:
    trigger = "<tool>"
    raw = text.encode()
    watch, at = TriggerWatch(trigger), 0
    while at < len(raw):
        size = data.draw(st.integers(1, len(raw) - at))
        prefix = watch.completes(raw[at : at + size])
        if prefix is not None:
            start = raw.find(trigger.encode())
            assert start >= 0
            assert prefix == raw[start : max(start, at)]
            assert start + len(trigger) <= at + size
            return
        watch.advance(raw[at : at + size])
        at += size
    assert trigger not in text


def test_a_trigger_is_not_found_across_a_reset() -> None:
    watch = TriggerWatch("<tool>")
    watch.advance(b"<to")
    watch.reset()
    assert watch.completes(b"ol>") is None


def fired(watch: TriggerWatch, pieces: list[bytes]) -> tuple[int, bytes] | None:
    """The piece that completes the trigger, and what of the trigger stands before it."""
    for place, piece in enumerate(pieces):
        before = watch.completes(piece)
        if before is not None:
            return place, before
        watch.advance(piece)
    return None


@given(st.text(alphabet="ab<>", max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_a_trigger_behind_something_fires_only_there(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b].encode() for a, b in pairwise(edges)]
    behind = text.find("<b>")
    start = text.find("<a", behind + 3) if behind >= 0 else -1
    found = fired(TriggerWatch("<a", after="<b>"), pieces)
    if start < 0:
        assert found is None
    else:
        assert found is not None
        place, before = found
        assert edges[place] < start + 2 <= edges[place + 1]
        assert before.decode() == text[start : max(start, edges[place])]
