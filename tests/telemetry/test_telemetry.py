"""Settings, log lines, contexts and spans, each by itself."""

from __future__ import annotations

import argparse
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heptagram_telemetry import logs
from heptagram_telemetry.settings import Telemetry, TelemetryError, add_arguments, take_arguments
from heptagram_telemetry.trace_context import TraceContext
from heptagram_telemetry.tracing import NoTracer, open_tracer
from tests.telemetry.spans import PARENT, read_spans

_ID, _SPAN = PARENT.trace_id, PARENT.span_id


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (f"00-{_ID}-{_SPAN}-01", PARENT),
        (f"00-{_ID}-{_SPAN}-00", TraceContext(_ID, _SPAN, sampled=False)),
        (f"00-{_ID}-{_SPAN}-03", PARENT),
        (f"cc-{_ID}-{_SPAN}-01-what-the-future-will-be", PARENT),
        (f"cc-{_ID}-{_SPAN}-01", PARENT),
        (f"00-{_ID}-{_SPAN}-01-more", None),
        (f"ff-{_ID}-{_SPAN}-01", None),
        (f"00-{'0' * 32}-{_SPAN}-01", None),
        (f"00-{_ID}-{'0' * 16}-01", None),
        (f"00-{_ID.upper()}-{_SPAN}-01", None),
        (f"00-{_ID}-{_SPAN}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_trace_context_is_read_as_w3c_writes_it(header: str | None, read: TraceContext | None) -> None:
    assert TraceContext.parse(header) == read


def test_a_trace_context_is_written_as_it_is_read() -> None:
    for context in (PARENT, TraceContext(_ID, _SPAN, sampled=False)):
        assert TraceContext.parse(context.header) == context


# --- settings ---


def parsed(*argv: str, **environment: str) -> Telemetry:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return take_arguments(vars(parser.parse_args(argv)), environment)


def test_flags_come_before_the_environment_and_are_handed_on() -> None:
    assert parsed() == Telemetry() == Telemetry("text", "warning", "")
    below: dict[str, str] = {}
    parsed("--log-format", "json", "--otlp-traces-endpoint", "http://c:4318/v1/traces").hand_on(below)
    assert parsed("--log-level", "info", **below) == Telemetry("json", "info", "http://c:4318/v1/traces")
    assert Telemetry.from_environment(below) == Telemetry("json", "warning", "http://c:4318/v1/traces")


@pytest.mark.parametrize(
    ("variable", "value", "flag"),
    [
        ("HEPTAGRAM_LOG_FORMAT", "xml", "--log-format"),
        ("HEPTAGRAM_LOG_LEVEL", "loud", "--log-level"),
        ("HEPTAGRAM_OTLP_TRACES_ENDPOINT", "collector:4318", "--otlp-traces-endpoint"),
        ("HEPTAGRAM_OTLP_TRACES_ENDPOINT", "http://", "--otlp-traces-endpoint"),
        ("HEPTAGRAM_OTLP_TRACES_ENDPOINT", "file:", "--otlp-traces-endpoint"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_its_name(variable: str, value: str, flag: str) -> None:
    with pytest.raises(TelemetryError, match=flag):
        Telemetry.from_environment({variable: value})


# --- logs ---


@contextmanager
def bare_root() -> Iterator[None]:
    """A process without handlers, as ours are when they begin; pytest's are set aside."""
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in ("", *logs._OURS)}
    handlers, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def written(telemetry: Telemetry, logger: str = "heptagram_backend.engine") -> list[str]:
    out = io.StringIO()
    with bare_root():
        logs.configure(telemetry, out)
        log = logging.getLogger(logger)
        token = logs.request_id.set("req-7")
        log.info("ended", extra={"fields": {"tokens": 3, "error": None}})
        log.warning("late", extra={"fields": {"request_id": "req-8"}})
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("broken")
        logs.request_id.reset(token)
        log.error("nobody's")
    return out.getvalue().splitlines()


def test_a_line_of_json_names_its_request_and_holds_its_fields() -> None:
    ended, late, broken, nobodys = (json.loads(line) for line in written(Telemetry("json", "info")))
    about = {"level": "info", "logger": "heptagram_backend.engine", "request_id": "req-7", "message": "ended"}
    assert {name: ended[name] for name in (*about, "tokens")} == {**about, "tokens": 3}
    assert "error" not in ended
    assert late["request_id"] == "req-8"
    assert broken["exception"].endswith("ValueError: why")
    assert "request_id" not in nobodys


def test_a_line_of_text_does_too() -> None:
    lines = written(Telemetry("text", "info"))
    assert lines[0].endswith("INFO req-7 heptagram_backend.engine: ended tokens=3")
    assert lines[1].endswith("WARNING req-8 heptagram_backend.engine: late")
    assert lines[-1].endswith("ERROR - heptagram_backend.engine: nobody's")


def test_a_level_is_ours_alone() -> None:
    assert len(written(Telemetry("json", "error"))) == 2


def test_what_others_say_is_told_from_warnings_on() -> None:
    assert len(written(Telemetry("json", "debug"), logger="somebody.else")) == 3


# --- traces ---


def test_without_an_endpoint_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "heptagram_telemetry.otel", None)
    tracer = open_tracer(Telemetry(), "service")
    assert isinstance(tracer, NoTracer)
    span = tracer.begin("work", PARENT.header)
    assert span is tracer.begin("other", None)  # nothing is made of it
    assert span.traceparent is None
    span.part("part", start_ns=1, end_ns=2)
    span.end({"a": 1}, error="b")
    tracer.close()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "heptagram_telemetry.otel", None)
    with pytest.raises(TelemetryError, match=r"pip install 'heptagram\[tracing\]'"):
        open_tracer(Telemetry(otlp_traces_endpoint="http://c:4318/v1/traces"), "service")


def test_spans_belong_to_their_parents(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    tracer = open_tracer(Telemetry(otlp_traces_endpoint=f"file:{path}"), "service")
    served = tracer.begin("served", PARENT.header, serves=True)
    work = tracer.begin("work", served.traceparent, start_ns=5_000_000_000)
    work.part("step", start_ns=6_000_000_000, end_ns=8_000_000_000, attributes={"steps": 2, "none": None})
    work.end(error="internal")
    served.end({"status": 200})
    alone = tracer.begin("alone", "nonsense")
    alone.end()
    tracer.close()
    told = {span.name: span for span in read_spans(path)}
    assert {(span.service, span.trace == _ID) for span in told.values()} == {("service", True), ("service", False)}
    assert (told["served"].parent, told["served"].kind) == (_SPAN, "SERVER")
    assert (told["work"].parent, told["work"].error) == (told["served"].id, "internal")
    step: Any = told["step"]
    assert (step.parent, step.start, step.end, step.attributes) == (told["work"].id, 6, 8, {"steps": 2})
    assert told["alone"].parent is None


def test_a_trace_that_is_not_sampled_is_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    tracer = open_tracer(Telemetry(otlp_traces_endpoint=f"file:{path}"), "service")
    span = tracer.begin("work", TraceContext(_ID, _SPAN, sampled=False).header)
    span.part("step", start_ns=1, end_ns=2)
    context = TraceContext.parse(span.traceparent)
    assert context is not None
    assert (context.trace_id, context.sampled) == (_ID, False)
    span.end()
    tracer.close()
    assert read_spans(path) == []
