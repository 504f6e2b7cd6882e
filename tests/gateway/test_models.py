"""Model ids, what they mean, and whether they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from openai.types import Model

from heptagram_gateway.errors import ApiError
from heptagram_gateway.models import Models, ServedModel, Target, parse_served, served_by_default
from tests.client.samples import TEXT
from tests.gateway.front import Running, running
from tests.gateway.scripted import ScriptedServer, play
from tests.gateway.test_errors import error_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smollm2", ServedModel("smollm2", "chat", "completions")),
        ("org/model-1.5:q4", ServedModel("org/model-1.5:q4", "chat", "completions")),
        ("a=other", ServedModel("a", "other", "other")),
        ("a=other@3", ServedModel("a", "other", "other", "3")),
    ],
)
def test_reading_names(text: str, expected: ServedModel) -> None:
    assert parse_served(text) == expected


@pytest.mark.parametrize("text", ["", "=a", "a=", "a@1", "a=b@", "a=b@x", "a=b/c", "a b", "-a", "x" * 129, "a=b@1=c"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="NAME"):
        parse_served(text)


@pytest.fixture(scope="module")
def named() -> Iterator[Running]:
    served = (parse_served("alias"), parse_served("old=chat@1"), parse_served("gone=other"), *served_by_default())
    with running(play(TEXT), served=served) as front:
        yield front


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("chat", "chat"),
        ("alias", "chat"),
        ("alias@1", "chat@1"),
        ("chat@2", "chat@2"),
        ("old", "chat@1"),
        ("old@1", "chat@1"),
        ("gone", "other"),  # Triton decides
        (None, "chat"),
    ],
)
def test_what_an_id_asks(named: Running, model: str | None, asked: str) -> None:
    named.server.ready = {"chat": ("1", "2")}
    answer = named.post(model=model)
    assert answer.status_code == 200
    assert named.server.requests[-1][0] == asked
    assert "model" not in named.server.requests[-1][1]
    assert answer.json()["model"] == (model or "alias")


@pytest.mark.parametrize(
    "model", ["", "other", "chat@3", "chat@", "chat@x", "old@2", "@1", "preprocess", "chat@1@1", "x" * 999]
)
def test_ids_that_are_none(named: Running, model: str) -> None:
    named.server.requests.clear()
    for stream in (True, False):
        answer = named.post(model=model, stream=stream)
        assert answer.status_code == 404
        error = error_of(answer)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert len(error["message"]) < 300
    assert not named.server.requests


def test_the_list(named: Running) -> None:
    named.server.ready = {"chat": ("1", "2"), "completions": ("1",)}
    answer = named.get("/v1/models").json()
    assert answer["object"] == "list"
    for card in answer["data"]:
        Model.model_validate(card, strict=True)
    assert {card["id"]: card["versions"] for card in answer["data"]} == {
        "alias": ["1", "2"],
        "old": ["1"],
        "chat": ["1", "2"],
        "completions": ["1"],
    }
    assert named.get("/v1/models/alias@2").json()["versions"] == ["2"]
    for absent in ("gone", "nothing", "alias@7", "a/b", "%2e%2e"):
        assert named.get(f"/v1/models/{absent}").status_code == 404


def test_a_version_beside_the_current_one_is_answered_by_its_own_ensemble(named: Running) -> None:
    named.server.ready = {"chat": ("1",), "chat_v1": ("1",), "chat_v2": ("2",)}
    for model, asked in (("chat", "chat"), ("chat@1", "chat_v1@1"), ("alias@2", "chat_v2@2")):
        assert named.post(model=model).status_code == 200
        assert named.server.requests[-1][0] == asked
        assert named.get(f"/v1/models/{model}").status_code == 200
    for path in ("/v1/models/chat@3", "/v1/models/completions@2"):
        assert named.get(path).status_code == 404


def test_readiness(front: Running, server: ScriptedServer) -> None:
    assert front.get("/health/ready").json() == {"status": "ready"}
    server.ready = {"completions": ("1",)}
    answer = front.get("/health/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "'chat' is not ready" in error_of(answer)["message"]
    server.ready = None
    assert "cannot be reached" in error_of(front.get("/health/ready"))["message"]
    assert front.get("/v1/models").status_code == 503
    assert front.post(model="chat@1").status_code == 503
    assert front.get("/health").status_code == 200


def test_a_pinned_default_must_be_ready() -> None:
    models = Models((parse_served("old=chat@1"),), ScriptedServer(play(TEXT)))
    assert asyncio.run(models.find_chat(None, "")) == Target("old", "chat", "1")
    with pytest.raises(ApiError):
        asyncio.run(models.find_chat("old@2", ""))
