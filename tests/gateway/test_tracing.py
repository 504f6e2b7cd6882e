"""What the gateway traces, and what it hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from heptagram_client.transports.carried import carried
from heptagram_telemetry.settings import Telemetry
from heptagram_telemetry.trace_context import TraceContext
from heptagram_wire.events import Event
from tests.client.samples import TEXT
from tests.gateway.front import HELLO, Running, running
from tests.gateway.scripted import play
from tests.telemetry.spans import PARENT, read_spans

_HEADERS = {"x-request-id": "mine-7", "traceparent": PARENT.header}


class Listening:
    """A script that keeps what its request carries along."""

    def __init__(self) -> None:
        self.carried: list[dict[str, object]] = []

    def __call__(self, request: dict[str, object]) -> AsyncIterator[Sequence[Event]]:
        self.carried.append(carried())
        return play(TEXT)(request)


def ask(front: Running, headers: dict[str, str], model: str = "chat") -> int:
    with front.http() as client:
        return client.post(
            "/v1/chat/completions", json={"model": model, "messages": HELLO}, headers=headers
        ).status_code


def test_a_request_is_a_span_and_its_parts_are_below_it(tmp_path: Path) -> None:
    path, script = tmp_path / "spans.jsonl", Listening()
    with running(script, telemetry=Telemetry(otlp_traces_endpoint=f"file:{path}")) as front:
        assert ask(front, _HEADERS) == 200
        assert ask(front, {"traceparent": "nonsense"}, model="unknown") == 404
        assert front.get("/v1/models").status_code == 200
    good, bad = read_spans(path)
    assert (good.name, good.service, good.kind) == ("POST /v1/chat/completions", "heptagram-gateway", "SERVER")
    assert (good.trace, good.parent, good.error) == (PARENT.trace_id, PARENT.span_id, None)
    told = {name: good.attributes[name] for name in ("request_id", "http.response.status_code", "finish_reason")}
    assert told == {"request_id": "mine-7", "http.response.status_code": 200, "finish_reason": "stop"}
    assert (bad.parent, bad.error) == (None, "model_not_found")
    [sent] = script.carried
    below = TraceContext(PARENT.trace_id, good.id).header
    assert sent == {"request_id": "mine-7", "parameters": {"traceparent": below}}


@pytest.mark.parametrize("header", [PARENT.header, None, "nonsense"])
def test_without_traces_a_context_is_handed_on_as_it_came(header: str | None) -> None:
    script = Listening()
    with running(script) as front:
        assert ask(front, {"x-request-id": "mine-8"} | ({"traceparent": header} if header else {})) == 200
    parameters = {"traceparent": header} if header == PARENT.header else None
    assert script.carried == [{"request_id": "mine-8", "parameters": parameters}]
