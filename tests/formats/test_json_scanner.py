"""The incremental JSON reader against the standard library's."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from heptagram_backend.formats.json_scanner import JsonScanner

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
containers = st.lists(values) | st.dictionaries(st.text(), values) | st.text()
separators = st.sampled_from([(",", ":"), (", ", ": "), (" , ", "\n:\t")])


def scan(text: str, cuts: list[int]) -> tuple[int, str]:
    """Feed ``text`` in pieces that end at ``cuts``; where reading stopped, and the state."""
    scanner, place = JsonScanner(), 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        if scanner.state != "open":
            break
        while place < end and scanner.state == "open":
            place += scanner.feed(text[place:end], 0)
    return place, scanner.state


def oracle(text: str) -> int | None:
    """The end of the value at the start of ``text``."""
    try:
        return json.JSONDecoder(parse_constant=_refuse).raw_decode(text)[1]
    except ValueError:
        return None


def _refuse(name: str) -> Any:
    raise ValueError(name)


@settings(deadline=None, max_examples=40)
@given(containers, separators, st.booleans(), st.text(max_size=5), st.lists(st.integers(0, 1 << 16), max_size=4))
def test_it_ends_where_the_value_ends(
    value: Any, blanks: tuple[str, str], ascii_only: bool, rest: str, cuts: list[int]
) -> None:
    text = json.dumps(value, separators=blanks, ensure_ascii=ascii_only)
    for end in range(1, len(text)):
        assert scan(text[:end], []) == (end, "open")
    assert scan(text + rest, cuts) == (len(text), "done")


@settings(deadline=None, max_examples=500)
@given(st.text(alphabet='{}[],:"\\/bu019-+.eE tfnrulasé\n\x01', max_size=14).map(lambda tail: "[" + tail))
@example('["\\ud83d"]')
@example("[01]")
@example("[1.]")
@example("[1e+]")
@example("[-]")
@example("[1,]")
@example('{"a":1,}')
@example("[NaN]")
@example("[]]")
def test_it_is_as_strict_as_the_standard_library(text: str) -> None:
    end, state = scan(text, [])
    expected = oracle(text)
    assert (state == "done") == (expected is not None)
    if expected is not None:
        assert end == expected
    if state == "open":
        assert _completable(text), text


def _completable(text: str) -> bool:
    """Some short tail makes it JSON: what is called open is open."""
    tails = (
        "",
        '"',
        "0",
        "0000",
        "000",
        "00",
        ":0",
        '"":0',
        "n",
        "rue",
        "alse",
        "ull",
        "ue",
        "lse",
        "ll",
        "se",
        "l",
        "e",
    )
    scanner = JsonScanner()
    scanner.feed(text, 0)
    closers = "".join(reversed([closer for closer in scanner._closers if closer != ":"]))
    middles = (*tails, *(tail + '"' for tail in tails), *(tail + '":0' for tail in tails), '\\"', '\\":0')
    return any(oracle(text + middle + closers) is not None for middle in middles)
