"""What is told of a request when it has ended, and that nobody pays where nobody reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.triton.account import Origin, accounted
from heptagram_telemetry.settings import Telemetry
from heptagram_telemetry.tracing import NoTracer, open_tracer
from heptagram_wire import errors as codes
from heptagram_wire.events import Event, Failure, Finish, SpeculativeStats, Start, Stats, TextDelta, Usage
from tests.engine.harness import Collector
from tests.telemetry.spans import PARENT, read_spans
from tests.triton.fake_pb_utils import Request

WORK = GenerationRequest((1, 2, 3), OutputSpec("probe"), "m", max_tokens=9)
STATS = Stats(prefill_s=0.25, decode_s=0.5, steps=3, speculative_decoding=SpeculativeStats((1, 1, 1, *[0] * 5), 7))


def test_nobody_pays_for_what_nobody_reads() -> None:
    sink = Collector()
    assert accounted(sink, WORK, Origin(), NoTracer()) is sink
    request = Request(request_id="mine", parameters="not even JSON")
    assert Origin.of(request, NoTracer()) == Origin("mine")


@pytest.mark.parametrize("parameters", [{}, {"traceparent": 7}, {"traceparent": PARENT.header}])
def test_a_request_brings_its_place_in_a_trace(tmp_path: Path, parameters: Mapping[str, Any]) -> None:
    tracer = open_tracer(Telemetry(otlp_traces_endpoint=f"file:{tmp_path / 'spans'}"), "s")
    found = Origin.of(Request(request_id="mine", parameters=json.dumps(parameters)), tracer)
    assert found == Origin("mine", PARENT.header if parameters.get("traceparent") == PARENT.header else None)
    tracer.close()


def test_an_end_is_told_once_with_its_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heptagram_backend.triton.account")
    sink = Collector()
    account = accounted(sink, WORK, Origin("mine"), NoTracer())
    events: list[Event] = [Start("id-1", "m", "4", 3, 9), TextDelta("secret"), Finish("stop", Usage(3, 6), STATS)]
    account.send(events[:1], final=False)
    account.send(events[1:2], final=False)
    account.send(events[2:], final=True)
    assert sink.events == events
    [line] = caplog.records
    told: dict[str, Any] = line.fields  # type: ignore[attr-defined]
    assert (told["request_id"], told["id"], told["version"], told["finish_reason"]) == ("mine", "id-1", "4", "stop")
    assert (told["tokens"], told["steps"], told["drafted"], told["accepted"]) == (6, 3, 7, 3)
    assert told["seconds"] >= told["decode_s"] >= told["queue_s"] == told["prefill_s"] == 0  # within the request
    assert "secret" not in str(told)


def test_a_failure_is_the_error_of_its_span(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    tracer = open_tracer(Telemetry(otlp_traces_endpoint=f"file:{path}"), "s")
    account = accounted(Collector(), WORK, Origin("mine", PARENT.header), tracer)
    account.send([Start("id-1", "m", "4", 3, 9), Failure(codes.INTERNAL, "secret")], final=True)
    tracer.close()
    [span] = read_spans(path)
    assert (span.name, span.error, span.parent) == ("generate", "internal", PARENT.span_id)
    assert "secret" not in path.read_text()
