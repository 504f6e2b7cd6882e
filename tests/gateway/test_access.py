"""Who may ask, from where, and what is written down of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from heptagram_gateway.observe import AccessLog, open_log
from heptagram_gateway.record import Record
from heptagram_wire.events import Failure
from tests.client.samples import CALL, START, TEXT, each_alone
from tests.gateway.front import HELLO, Running, running
from tests.gateway.scripted import ScriptedServer, play
from tests.gateway.test_errors import error_of


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with running(play(TEXT), api_keys=("first", "second"), cors_origins=("https://good.example",)) as front:
        yield front


@pytest.mark.parametrize("header", ["Bearer first", "bearer second", "Bearer  first"])
def test_a_key_opens(locked: Running, header: str) -> None:
    with locked.http() as client:
        assert client.get("/v1/models", headers={"authorization": header}).status_code == 200
        assert client.get("/v1/models", headers={"x-api-key": "second"}).status_code == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer firs", "Bearer first2", "Basic first", "first"])
def test_without_a_key(locked: Running, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    with locked.http() as client:
        for path in ("/v1/chat/completions", "/v1/models", "/v1/nothing"):
            answer = client.post(path, json={"messages": HELLO}, headers=headers)
            assert answer.status_code == 401
            assert error_of(answer)["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == 200
        assert client.get("/metrics").status_code == 200
    assert not locked.server.requests


def test_openais_client_knows_the_error(locked: Running) -> None:
    with locked.openai("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    with locked.openai("second") as client:
        assert client.models.list().data


def test_cors(locked: Running, front: Running) -> None:
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    with locked.http() as client:
        good = client.options("/v1/chat/completions", headers={"origin": "https://good.example", **ask})
        assert (good.status_code, good.headers["access-control-allow-origin"]) == (200, "https://good.example")
        bad = client.options("/v1/chat/completions", headers={"origin": "https://bad.example", **ask})
        assert "access-control-allow-origin" not in bad.headers
        refused = client.get("/v1/models", headers={"origin": "https://good.example"})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://good.example")
    with front.http() as client:
        off = client.options("/v1/chat/completions", headers={"origin": "https://good.example", **ask})
        assert off.status_code == 405
        assert not [name for name in off.headers if name.startswith("access-control")]


def test_request_ids(front: Running) -> None:
    with front.http() as client:
        assert client.get("/health", headers={"x-request-id": "mine-1.a"}).headers["x-request-id"] == "mine-1.a"
        for foreign in ("", "a b", "x" * 129, 'quote"', "a;b"):
            made = client.get("/health", headers={"x-request-id": foreign}).headers["x-request-id"]
            assert made.startswith("req-")
    assert front.lines(6)[0]["request_id"] == "mine-1.a"


def test_the_access_log_tells_what_happened_but_no_content(front: Running, server: ScriptedServer) -> None:
    server.script = play(*each_alone(CALL))
    front.chunks(messages=[{"role": "user", "content": "pineapple"}], user="jane")
    server.script = play([START], [Failure("internal", "pineapple")])
    front.chunks()
    front.post("/v1/chat/completions?pineapple=1", model="pineapple")
    front.post("/pineapple")
    good, failed, absent, nowhere = front.lines(4)
    assert (good["endpoint"], good["status"], good["model"], good["stream"]) == ("chat", 200, "chat", True)
    assert (good["prompt_tokens"], good["completion_tokens"], good["finish_reason"]) == (10, 12, "tool_calls")
    assert 0 <= good["first_event_s"] <= good["seconds"]
    assert (failed["status"], failed["error"]) == (200, "internal")
    assert (absent["status"], absent["error"]) == (404, "model_not_found")
    assert (nowhere["endpoint"], nowhere["status"]) == ("other", 404)
    assert "pineapple" not in json.dumps(front.log)
    assert "jane" not in json.dumps(front.log)


def test_where_the_log_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    AccessLog(out)(Record("req-1", "GET"))
    assert json.loads(out.getvalue())["request_id"] == "req-1"
    for _ in range(2):
        write, closing = open_log(str(tmp_path / "log"))
        with closing:
            write(Record("req-2", "GET"))
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    open_log("-")[0](Record("req-3", "GET"))
    assert "req-3" in capsys.readouterr().out
    open_log("off")[0](Record("req-4", "GET"))
    assert not capsys.readouterr().out
    with pytest.raises(OSError, match="Is a directory"):
        open_log(str(tmp_path))


def test_metrics(front: Running, server: ScriptedServer) -> None:
    def value(name: str) -> float:
        lines = front.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    asked = 'heptagram_gateway_requests_total{endpoint="chat",method="POST",status="200"}'
    names = (
        asked,
        'heptagram_gateway_tokens_total{kind="completion"}',
        'heptagram_gateway_errors_total{code="internal"}',
    )
    before = [value(name) for name in names]
    front.post()
    server.script = play([START], [Failure("internal", "no")])
    front.chunks()
    front.wait(lambda: [value(name) for name in names] == [before[0] + 2, before[1] + 2, before[2] + 1])
    assert value("heptagram_gateway_running") == 1  # this very question
    with front.http() as client:
        client.request("BREW", "/health")
    assert value('heptagram_gateway_requests_total{endpoint="other",method="other",status="405"}') >= 1
