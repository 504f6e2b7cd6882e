"""Events to responses: one send a step, exactly one FINAL, and one response only without ``stream``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heptagram_backend.errors import EngineError, OverloadedError, RequestError
from heptagram_backend.triton.render import EventRenderer
from heptagram_backend.triton.sink import ResponseSink
from heptagram_wire import errors as codes
from heptagram_wire.codec import decode_event
from heptagram_wire.events import Event, Failure, Finish, Ping, Start, TextDelta
from tests.triton.fake_pb_utils import InferenceResponse, Sender, TritonError

START = Start("id", "model", "1", 3, 8)
Made = tuple[ResponseSink, Sender, list[str]]
Make = Callable[..., Made]


@pytest.fixture
def make() -> Make:
    def build(*, stream: bool = True) -> Made:
        sender, closed = Sender(), list[str]()
        sink = ResponseSink(
            sender,
            ticket="the ticket",
            stream=stream,
            renderer=EventRenderer(),
            closed=lambda: closed.append("closed"),
        )
        return sink, sender, closed

    return build


def events(response: InferenceResponse) -> list[Event]:
    return [decode_event(text) for text in response.texts("events")]


def test_each_step_is_one_send_with_the_ticket(make: Make) -> None:
    sink, sender, closed = make()
    sink.send([START], final=False)
    sink.send([TextDelta("a"), TextDelta("b")], final=False)
    assert not closed
    sink.send([Finish("stop")], final=True)
    assert [final for _, final in sender.sent] == [False, False, True]
    assert [len(events(response)) for response, _ in sender.sent] == [1, 2, 1]
    assert all(response.texts("ticket") == ["the ticket"] for response, _ in sender.sent)
    assert closed == ["closed"]


def test_without_stream_there_is_one_response_without_start_and_ping(make: Make) -> None:
    sink, sender, closed = make(stream=False)
    sink.send([START], final=False)
    sink.send([Ping()], final=False)
    sink.send([TextDelta("a")], final=False)
    assert not sender.sent
    sink.send([TextDelta("b"), Finish("stop")], final=True)
    [(response, final)] = sender.sent
    assert final
    assert events(response) == [TextDelta("a"), TextDelta("b"), Finish("stop")]
    assert closed == ["closed"]


def test_a_failure_after_start_is_an_event(make: Make) -> None:
    sink, sender, _ = make()
    sink.send([START], final=False)
    sink.send([Failure(codes.INVALID_OUTPUT, "no")], final=True)
    response, final = sender.sent[-1]
    assert final
    assert response.error is None
    assert events(response) == [Failure(codes.INVALID_OUTPUT, "no")]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (codes.INTERNAL, TritonError.INTERNAL),
        (codes.INVALID_OUTPUT, TritonError.INTERNAL),
        (codes.DRAINING, TritonError.UNAVAILABLE),
        (codes.CONTEXT_LENGTH, TritonError.INVALID_ARG),
    ],
)
def test_without_stream_a_failure_is_an_error_with_final(make: Make, code: str, status: int) -> None:
    sink, sender, closed = make(stream=False)
    sink.send([START, TextDelta("a")], final=False)
    sink.send([Failure(code, "no", "messages")], final=True)
    [(response, final)] = sender.sent
    assert final
    assert response.error is not None
    assert (response.error.text, response.error.code) == (f"[{code}] messages: no", status)
    assert closed == ["closed"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("no", param="x"), TritonError.INVALID_ARG),
        (OverloadedError("no"), TritonError.UNAVAILABLE),
        (OverloadedError("no", code=codes.DRAINING), TritonError.UNAVAILABLE),
        (EngineError("no"), TritonError.INTERNAL),
    ],
)
def test_an_error_goes_out_together_with_final(
    make: Make, error: RequestError | OverloadedError | EngineError, status: int
) -> None:
    sink, sender, closed = make()
    sink.fail(error)
    [(response, final)] = sender.sent
    assert final
    assert response.error is not None
    assert (response.error.text, response.error.code) == (error.wire.format(), status)
    assert closed == ["closed"]


def test_nothing_follows_final(make: Make) -> None:
    sink, sender, closed = make()
    sink.send([Finish("stop")], final=True)
    sink.send([TextDelta("late")], final=False)
    sink.fail(EngineError("late"))
    assert len(sender.sent) == 1
    assert closed == ["closed"]
    assert not sink.abandoned()  # the fake asserts that is_cancelled is not asked after FINAL


def test_a_send_that_raises_is_contained_and_means_that_the_client_left(make: Make) -> None:
    sink, sender, closed = make()
    assert not sink.abandoned()
    sender.raises = RuntimeError("shared memory is full")
    sink.send([START], final=False)
    sender.raises = None
    assert sink.abandoned()
    sink.send([Finish("cancelled")], final=True)
    assert closed == ["closed"]
    assert sender.sent[-1][1]


def test_a_final_send_that_raises_still_closes(make: Make) -> None:
    sink, sender, closed = make()
    sender.raises = RuntimeError("gone")
    sink.send([Finish("stop")], final=True)
    assert closed == ["closed"]
    assert not sink.abandoned()


def test_a_cancel_that_triton_tells_is_seen(make: Make) -> None:
    sink, sender, _ = make()
    sender.cancelled = True
    assert sink.abandoned()


@pytest.mark.parametrize("bad", [TextDelta("\ud800"), TextDelta(float("nan"))])  # type: ignore[arg-type]
def test_events_that_cannot_be_written_end_their_request_only(make: Make, bad: Event) -> None:
    sink, sender, closed = make()
    sink.send([bad], final=False)
    assert not sender.sent, "an error without FINAL leaks the ensemble's request"
    assert sink.abandoned()
    sink.send([bad, Finish("cancelled")], final=True)
    [(response, final)] = sender.sent
    assert final
    assert response.error is not None
    assert "[internal]" in response.error.text
    assert closed == ["closed"]
