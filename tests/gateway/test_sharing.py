"""Conversations among versions: how many fall to which, which ones move, and what a conversation is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_client.errors import ServerError
from heptagram_gateway.errors import ApiError
from heptagram_gateway.models import served_by_default
from heptagram_gateway.shares import KnownShares
from heptagram_gateway.sharing import choose, conversation_of
from heptagram_wire.traffic import read_traffic, traffic_text
from tests.client.samples import TEXT
from tests.gateway.front import HELLO, Running, running
from tests.gateway.scripted import play, told

MANY = [f"conversation {n}" for n in range(4000)]
WEIGHTS = st.dictionaries(st.sampled_from("12345"), st.integers(0, 100), min_size=1).filter(lambda w: any(w.values()))


def shares_of(weights: Mapping[str, int]) -> Counter[str]:
    return Counter(choose(weights, one) for one in MANY)


@pytest.mark.parametrize("weights", [{"1": 75, "2": 25}, {"1": 40, "2": 50, "3": 10}, {"1": 99, "2": 1}])
def test_versions_get_what_their_weights_say(weights: dict[str, int]) -> None:
    found = shares_of(weights)
    for version, weight in weights.items():
        wanted = len(MANY) * weight / 100
        assert abs(found[version] - wanted) < 5 * (wanted * (1 - weight / 100)) ** 0.5  # five standard deviations


@given(WEIGHTS, st.text())
def test_none_goes_where_nothing_is_given(weights: dict[str, int], conversation: str) -> None:
    assert weights[choose(weights, conversation)] > 0
    assert choose(weights, conversation) == choose(dict(reversed(weights.items())), conversation)


@given(WEIGHTS, WEIGHTS, st.text())
def test_a_conversation_moves_only_from_less_to_more(
    before: dict[str, int], after: dict[str, int], conversation: str
) -> None:
    old, new = choose(before, conversation), choose(after, conversation)
    if old != new:
        scale = {version: (before.get(version, 0), after.get(version, 0)) for version in (old, new)}
        assert scale[old][1] < scale[old][0] or scale[new][1] > scale[new][0]


@given(st.integers(1, 100), st.integers(0, 100), st.text())
def test_what_a_version_has_it_keeps_while_its_share_grows(weight: int, more: int, conversation: str) -> None:
    grown = min(100, weight + more)
    if choose({"1": 100 - weight, "2": weight}, conversation) == "2":
        assert choose({"1": 100 - grown, "2": grown}, conversation) == "2"


def turns(*texts: Any, system: str = "It is noon.") -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [
        {"role": "system", "content": system},
        *({"role": roles[place % 2], "content": text} for place, text in enumerate(texts)),
    ]


MARKED = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"messages": turns("Hello")}, {"messages": turns("Hello", "Hi", "And?", system="It is one.")}),
        ({"input": "Hello"}, {"input": "Hello"}),
        ({"input": turns("Hello")}, {"input": turns("Hello", "Hi", "And?")}),
        ({"messages": turns(MARKED)}, {"messages": turns([{"type": "text", "text": "Hello"}], "Hi", MARKED)}),
        (
            {"messages": turns("Hello"), "metadata": {"conversation_id": "a"}},
            {"messages": turns("cut short"), "metadata": {"conversation_id": "a"}, "user": "x"},
        ),
        (
            {"messages": turns("Hello"), "temperature": 0.5},
            {"messages": turns("Hello"), "stream": True, "model": "chat"},
        ),
    ],
)
def test_the_same_conversation(first: dict[str, Any], later: dict[str, Any]) -> None:
    assert conversation_of(first) == conversation_of(later)


@pytest.mark.parametrize(
    "other",
    [
        {"messages": turns("Hello!")},
        {"messages": turns("Hello"), "user": "b"},
        {"messages": turns("Hello"), "prompt_cache_key": "b"},
        {"messages": turns("Hello"), "metadata": {"user_id": "b"}},
        {"messages": turns("Hello"), "metadata": {"session_id": "b"}},
        {"prompt": "Hello", "user": "a"},
    ],
)
def test_another_conversation(other: dict[str, Any]) -> None:
    assert conversation_of(other) != conversation_of({"messages": turns("Hello")})


def test_one_user_and_cache_key_for_all_is_not_one_conversation() -> None:
    shared = {"user": "app", "prompt_cache_key": "app"}
    weights = {"1": 50, "2": 50}
    found = {choose(weights, conversation_of({"messages": turns(text), **shared})) for text in MANY[:50]}
    assert found == {"1", "2"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(("messages", "input", "prompt", "metadata", "user", "prompt_cache_key"))


@given(st.dictionaries(FIELDS, JSON | st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": JSON}))))
def test_every_body_is_some_conversation(body: dict[str, Any]) -> None:
    assert choose({"1": 50, "2": 50}, conversation_of(body)) in ("1", "2")


@given(st.dictionaries(st.integers(1, 10**6), st.integers(0, 100)))
def test_shares_survive_their_text(weights: dict[int, int]) -> None:
    rest = 100 - sum(weights.values())
    if rest < 0:
        with pytest.raises(ValueError, match="add up to"):
            read_traffic(traffic_text(weights))
    else:
        weights = {**weights, 0: rest}
        assert read_traffic(traffic_text(weights)) == weights


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "not percents by version"),
        ('{"1": 99}', "add up to 99"),
        ('{"1": "100"}', "not percents"),
        ('{"1": true}', "not percents"),
        ('{"x": 100}', "invalid literal"),
        ('{"1": 101, "2": -1}', "not percents"),
    ],
)
def test_what_shares_nothing(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_traffic(text)


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with running(play(TEXT), served=served_by_default()) as front:
        yield front


def asked(front: Running, text: str) -> str:
    front.server.shared = {"chat": {"1": 75, "2": 25}}
    assert front.post(messages=[{"role": "user", "content": text}]).status_code == 200
    return front.server.requests[-1][0]


def test_a_front_sends_each_conversation_to_its_version(shared: Running) -> None:
    found = Counter(asked(shared, text) for text in MANY[:60])
    assert found.keys() == {"chat_v1@1", "chat_v2@2"}
    assert found["chat_v1@1"] > found["chat_v2@2"]
    for text in MANY[:5]:
        assert asked(shared, text) == asked(shared, text)


def test_a_named_version_is_not_shared(shared: Running) -> None:
    shared.server.shared = {"chat": {"1": 0, "2": 100}}
    shared.server.ready = {"chat": ("1",), "chat_v1": ("1",), "chat_v2": ("2",)}
    assert shared.post(model="chat@1").status_code == 200
    assert shared.server.requests[-1][0] == "chat_v1@1"
    assert shared.get("/v1/models/chat").json()["shares"] == {"1": 0, "2": 100}
    assert "shares" not in shared.get("/v1/models/chat@2").json()


def test_the_current_version_answers_where_the_chosen_one_is_gone(shared: Running) -> None:
    gone = ServerError("Request for unknown model: 'chat_v2' is not found")

    async def script(request: dict[str, Any]) -> Any:
        if shared.server.requests[-1][0] != "chat":
            raise gone
        yield TEXT

    async def texts(inputs: dict[str, Any]) -> Any:
        if shared.server.requests[-1][0] != "completions":
            raise gone
        yield told("x", "stop", 1, 1, final=True)

    shared.server.reset(script, texts)
    shared.server.shared = {"chat": {"2": 100}, "completions": {"2": 100}}
    assert shared.post(messages=HELLO).status_code == 200
    assert [model for model, _ in shared.server.requests] == ["chat_v2@2", "chat"]
    shared.server.requests.clear()
    assert shared.post("/v1/completions", model="completions", prompt="x").status_code == 200
    assert [model for model, _ in shared.server.requests] == ["completions_v2@2", "completions"]
    shared.server.reset(play(TEXT))


def test_shares_are_asked_for_once_and_kept_where_there_is_no_answer() -> None:
    answers: list[Mapping[str, int] | ApiError] = [{"1": 100}, ApiError(503, "gone"), {"2": 100}]
    questions: list[str] = []

    async def ask(ensemble: str) -> Mapping[str, int]:
        questions.append(ensemble)
        await asyncio.sleep(0)
        answer = answers[len(questions) - 1]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def run() -> None:
        known = KnownShares(ask, kept_s=0.05)
        assert await asyncio.gather(*(known.of("chat") for _ in range(5))) == [{"1": 100}] * 5
        assert questions == ["chat"]
        await asyncio.sleep(0.06)
        assert await known.of("chat") == {"1": 100}
        await asyncio.sleep(0.06)
        assert await known.of("chat") == {"2": 100}
        await known.close()

    asyncio.run(run())


def test_nobody_waits_long_for_shares() -> None:
    async def never(ensemble: str) -> Mapping[str, int]:
        await asyncio.Event().wait()
        raise AssertionError(ensemble)

    async def run() -> None:
        known = KnownShares(never, patience_s=0.01)
        assert await known.of("chat") == {}
        await known.close()

    asyncio.run(run())
