"""What a target is asked: the same for a seed, of every kind, and nothing that is held out among the rest."""

from __future__ import annotations

from collections import Counter

import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.requests import parse_chat_request
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.training import bfcl
from heptagram_backend.training.answers import Ask
from heptagram_backend.training.drafter_prompts import asks
from heptagram_wire.requests import encode_request


@pytest.fixture(scope="module")
def drawn() -> list[Ask]:
    return asks(3, 1200)


def test_a_seed_draws_the_same_whatever_their_number(drawn: list[Ask]) -> None:
    assert asks(3, 100) == drawn[:100]
    assert asks(4, 100) != drawn[:100]


def test_every_kind_is_there_and_tools_are_most(drawn: list[Ask]) -> None:
    kinds = Counter(ask.kind for ask in drawn)
    assert set(kinds) == {"tool", "about tools", "chat", "code", "math"}
    assert kinds["tool"] > len(drawn) / 2
    assert len({ask.group for ask in drawn if ask.kind == "tool"}) > 150
    for ask in drawn:
        assert ("tools" in ask.request) == (ask.kind in ("tool", "about tools"))


def test_what_is_held_out_is_nowhere_else(drawn: list[Ask]) -> None:
    held = {(ask.kind in ("tool", "about tools"), ask.group) for ask in drawn if ask.held_out}
    others = {(ask.kind in ("tool", "about tools"), ask.group) for ask in drawn if not ask.held_out}
    assert not held & others
    assert 0.05 < sum(ask.held_out for ask in drawn) / len(drawn) < 0.25


def test_bfcls_evaluation_files_are_never_asked(drawn: list[Ask]) -> None:
    if bfcl.data_folder() is None:
        pytest.skip("BFCL v4 is not installed")
    evaluated = {record.messages[-1]["content"] for category in bfcl.EVALUATION for record in bfcl.records(category)}
    assert len(evaluated) > 1000
    assert not evaluated & {ask.request["messages"][-1]["content"] for ask in drawn}


def test_requests_are_chat_requests(drawn: list[Ask]) -> None:
    refused = 0
    for ask in drawn[:200]:
        try:
            parse_chat_request(encode_request(ask.request), RequestLimits(), "chat")
        except RequestError:  # a schema of BFCL's
            refused += 1
    assert refused < 20
