"""Prompt lookup and the mask pool: no torch, microseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from heptagram_backend.drafts.prompt_lookup import PromptLookup
from heptagram_backend.masks import ALL_TOKENS, MaskPool, all_tokens_row

TOKENS = st.lists(st.integers(0, 3), max_size=30)


@given(TOKENS, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 7))
def test_lookup_proposes_what_followed_the_longest_latest_match(
    tokens: list[int], ahead: list[int], limit: int
) -> None:
    lookup = PromptLookup()
    lookup.extend(tokens)
    context = tokens + ahead
    expected: list[int] = []
    for size in range(min(3, len(context)), 0, -1):
        places = [at for at in range(len(tokens) - size) if tokens[at : at + size] == context[-size:]]
        if places:
            expected = tokens[places[-1] + size :][:limit]
            break
    assert list(lookup.propose(ahead, limit).tokens) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_the_pool_finds_rows_again_and_never_overwrites_one_of_the_step(contents: list[int]) -> None:
    device = np.zeros((10, 2), dtype=np.int32)

    def write(index: int, row: NDArray[np.int32]) -> None:
        device[index] = row

    ones = device[ALL_TOKENS] = all_tokens_row(40, 64)
    pool = MaskPool(rows=10, rows_per_step=8, write=write)
    for begin in range(0, len(contents), 8):
        step = [np.array([value, ~value], dtype=np.int32) for value in contents[begin : begin + 8]]
        places = [pool.place(row).row for row in step]
        assert all(place != ALL_TOKENS for place in places)
        for place, row in zip(places, step, strict=True):
            assert (device[place] == row).all()
        assert all(pool.place(row).uploaded == 0 for row in step), "a row of this step was uploaded twice"
    assert (device[ALL_TOKENS] == ones).all()


def test_row_zero_allows_the_real_tokens_only() -> None:
    row = all_tokens_row(40, 70)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert row.shape == (3,)
    assert bits[:40].all()
    assert not bits[40:].any()
