"""One request through gateway, Triton, preprocess and generate: one id in every log, one trace of all their spans."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import pytest

from heptagram_telemetry.settings import Telemetry
from tests.server.counted import Asked
from tests.server.gateway import running_gateway
from tests.server.repository import write_probes
from tests.server_fixture import running_server
from tests.telemetry.spans import PARENT, Read, read_spans

pytestmark = pytest.mark.server

SECRET = "swordfish"
GRAMMAR = Asked(SECRET, grammar='root ::= "abcdef"', drafts="auto")
PLAIN = Asked(SECRET + "x" * 20, drafts="right")


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that was told when gateway and server have ended."""

    spans: list[Read]
    access: list[dict[str, Any]]
    server: list[dict[str, Any]]
    whole_log: str

    def of(self, id: str) -> dict[str, Read]:
        found = [span for span in self.spans if span.attributes.get("request_id") == id]
        ids = {span.id for span in found}
        return {span.name: span for span in [*found, *(span for span in self.spans if span.parent in ids)]}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("telemetry")
    path = folder / "spans.jsonl"
    variables: dict[str, str] = {}
    Telemetry("json", "info", f"file:{path}").hand_on(variables)
    flags = ["--otlp-traces-endpoint", f"file:{path}", "--log-format", "json"]
    with running_server(write_probes(folder / "repository", "Counted"), env=variables) as server:
        with running_gateway(server.address.grpc_url, *flags) as gateway:
            assert ask(gateway.url, "plain-1", PLAIN, traceparent=PARENT.header) == 200
            assert ask(gateway.url, "grammar-2", GRAMMAR) == 200
            assert ask(gateway.url, "refused-3", Asked(SECRET, max_tokens=9999)) == 400
            assert ask(gateway.url, "broken-4", Asked("b" + SECRET)) == 500
            assert ask(gateway.url, "unread-5", None) == 400
            assert gateway.stop() == 0
        server.stop()
        log = server.log.read_text()
    access = [json.loads(line) for line in gateway.logged]
    return Told(read_spans(path), access, [json.loads(line) for line in log.splitlines() if line[:1] == "{"], log)


def ask(url: str, id: str, asked: Asked | None, **headers: str) -> int:
    content = "not an Asked" if asked is None else json.dumps(asdict(asked))
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": content}]}).encode()
    headers |= {"content-type": "application/json", "x-request-id": id}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_spans_of_a_request_are_one_trace(told: Told) -> None:
    spans = told.of("plain-1")
    assert set(spans) == {"POST /v1/chat/completions", "preprocess", "generate", "queue", "prefill", "decode"}
    assert {span.trace for span in spans.values()} == {PARENT.trace_id}
    gateway, generate = spans["POST /v1/chat/completions"], spans["generate"]
    assert gateway.parent == PARENT.span_id
    assert spans["preprocess"].parent == generate.parent == gateway.id
    assert {spans[name].parent for name in ("queue", "prefill", "decode")} == {generate.id}
    services = {span.service for span in spans.values()}
    assert services == {"heptagram-gateway", "heptagram-preprocess", "heptagram-generate"}


def test_the_parts_follow_each_other_and_count_their_steps(told: Told) -> None:
    spans = told.of("plain-1")
    order = [spans[name] for name in ("queue", "prefill", "decode")]
    assert all(first.end == second.start for first, second in pairwise(order))
    assert all(spans["POST /v1/chat/completions"].start <= part.start <= part.end for part in order)
    told_of_it = {name: order[-1].attributes[name] for name in ("steps", "drafted", "accepted", "tokens")}
    # 29 characters and the end: eight tokens a step, then the rest
    assert told_of_it == {"steps": 4, "drafted": 26, "accepted": 26, "tokens": 30}


def test_a_constraint_has_a_span_of_its_compilation(told: Told) -> None:
    spans = told.of("grammar-2")
    assert spans["compile"].parent == spans["generate"].id
    assert spans["compile"].end > spans["compile"].start
    assert spans["decode"].attributes["forced"] == 6


def test_a_failure_is_an_error_of_its_spans(told: Told) -> None:
    assert told.of("refused-3")["POST /v1/chat/completions"].error == "context_length_exceeded"
    assert "generate" not in told.of("refused-3")
    broken = told.of("broken-4")
    assert broken["generate"].error == broken["POST /v1/chat/completions"].error == "internal"
    assert told.of("unread-5")["preprocess"].error == "invalid_json"


@pytest.mark.parametrize(
    ("id", "message", "logger"),
    [
        ("plain-1", "ended", "account"),
        ("grammar-2", "ended", "account"),
        ("refused-3", "refused", "generate"),
        ("broken-4", "ended", "account"),
        ("unread-5", "refused", "preprocess"),
    ],
)
def test_one_id_is_in_every_log(told: Told, id: str, message: str, logger: str) -> None:
    [access] = [line for line in told.access if line["request_id"] == id]
    lines = [line for line in told.server if line.get("request_id") == id]
    assert [line["message"] for line in lines if line["level"] == "info"] == [message]
    assert lines[-1]["logger"] == f"heptagram_backend.triton.{logger}"
    assert lines[-1].get("error") == access.get("error")
    if access["status"] == 200:
        assert lines[-1]["tokens"] == access["completion_tokens"]


def test_no_log_and_no_span_holds_what_was_asked(told: Told) -> None:
    assert SECRET not in told.whole_log
    assert SECRET not in json.dumps([*told.access, *({"name": span.name, **span.attributes} for span in told.spans)])
