"""The protocol of ensemble, relay and generate on the real server, around the scripted engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from heptagram_wire import errors as codes
from heptagram_wire import tensors as names
from heptagram_wire.codec import decode_event
from heptagram_wire.errors import parse_error
from heptagram_wire.events import Event, Failure, Finish, Ping, Start, TextDelta
from tests.server.probe import Script
from tests.server.served import MISFITS, Received, Served, text_input

pytestmark = pytest.mark.server


def texts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def flat(received: list[Received]) -> list[Event]:
    return [event for response in received for event in response.events]


def test_a_stream_has_one_response_a_step_and_final_on_the_last(probes: Served) -> None:
    with probes.chat(Script(deltas=3).to_json()) as stream:
        received = stream.rest()
        assert stream.silent(0.3)
    assert [type(event) for event in flat(received)] == [Start, TextDelta, TextDelta, TextDelta, Finish]
    assert [len(response.events) for response in received] == [1, 1, 1, 1, 1]
    assert [response.final for response in received] == [False, False, False, False, True]


def test_pings_come_while_nothing_is_produced(probes: Served) -> None:
    with probes.chat(Script(deltas=1, wait_ms=100).to_json()) as stream:
        kinds = [type(event) for event in flat(stream.rest())]
    assert kinds[:2] == [Start, Ping]
    assert kinds[-2:] == [TextDelta, Finish]


def test_many_streams_at_once_keep_their_order(probes: Served) -> None:
    def play(deltas: int) -> str:
        with probes.chat(Script(deltas=deltas, step_ms=1).to_json()) as stream:
            return texts(flat(stream.rest()))

    lengths = list(range(20, 36))
    with ThreadPoolExecutor(len(lengths)) as pool:
        answers = list(pool.map(play, lengths))
    assert answers == ["".join(f"{n} " for n in range(length)) for length in lengths]
    probes.settle()


def test_http_generate_gives_one_response_without_stream(probes: Served) -> None:
    answer = probes.generate(Script(deltas=2, wait_ms=50, stream=False).to_json())
    assert answer.status == 200
    [message] = answer.messages
    events = [decode_event(text) for text in message[names.EVENTS]]
    assert [type(event) for event in events] == [TextDelta, TextDelta, Finish]


def test_http_generate_refuses_a_stream_in_tritons_words(probes: Served) -> None:
    answer = probes.generate(Script(deltas=2).to_json())
    assert (answer.status, answer.error[:46]) == (200, "generate expects model to produce exactly 1 re")
    probes.settle()


def test_http_generate_stream_unwraps_single_events(probes: Served) -> None:
    answer = probes.generate(Script(deltas=2).to_json(), stream=True)
    assert answer.status == 200
    assert all(isinstance(message[names.EVENTS], str) for message in answer.messages)
    events = [decode_event(message[names.EVENTS]) for message in answer.messages]
    assert [type(event) for event in events] == [Start, TextDelta, TextDelta, Finish]


def test_a_failure_after_start_is_an_event(probes: Served) -> None:
    with probes.chat(Script(fail_after=1).to_json()) as stream:
        received = stream.rest()
    assert isinstance(flat(received)[-1], Failure)
    assert received[-1].final


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(refuse="request"), codes.CONTEXT_LENGTH),
        (Script(refuse="overloaded"), codes.OVERLOADED),
        (Script(refuse="bug"), codes.INTERNAL),
        (Script(fail_before_start=True), codes.INTERNAL),
        (Script(fail_after=1, stream=False), codes.INTERNAL),
    ],
)
def test_an_error_of_generate_reaches_the_client_once_and_leaks_nothing(
    probes: Served, script: Script, code: str
) -> None:
    with probes.chat(script.to_json()) as stream:
        [received] = stream.rest()
    wire = parse_error(received.error or "")
    assert wire is not None
    assert wire.code == code
    # Over HTTP 2.51 answers 400 whatever the status is; the code in the text is what tells them apart.
    answer = probes.generate(script.to_json())
    assert answer.status == 400
    assert answer.error == received.error
    probes.settle()
    probes.reload()


@pytest.mark.parametrize(("request_text", "status"), [("bug", "INTERNAL"), ("no JSON", "INVALID_ARGUMENT")])
def test_an_error_of_preprocess_has_its_status_on_a_unary_call(probes: Served, request_text: str, status: str) -> None:
    """Streams carry the text only."""
    with triton.InferenceServerClient(probes.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
        client.infer(names.PREPROCESS, [text_input(names.REQUEST, request_text)])
    assert caught.value.status() == f"StatusCode.{status}"


@pytest.mark.parametrize("request_text", ["bug", "no JSON"])
def test_an_error_of_preprocess_leaks_nothing(probes: Served, request_text: str) -> None:
    for _ in range(3):
        with probes.chat(request_text) as stream:
            [received] = stream.rest()
        assert parse_error(received.error or "") is not None
    probes.reload()


def test_a_missing_input_is_our_400(probes: Served) -> None:
    for body in ({}, {"other": 1}):
        for way in ("generate", "generate_stream"):
            answer = probes.post(f"models/chat/{way}", body)
            assert answer.status == 400
            assert "[missing] request: " in answer.error
    with probes.stream() as stream:
        [received] = stream.rest()
    assert "[missing] request: " in (received.error or "")


def test_bytes_that_are_not_text_are_our_400(probes: Served) -> None:
    with probes.stream(text_input(names.REQUEST, b"\xff\xfe")) as stream:
        [received] = stream.rest()
    assert "[invalid_json] request: " in (received.error or "")


def test_dtype_shape_and_extra_inputs_are_tritons_own_errors(probes: Served) -> None:
    """On a unary call; the ensemble takes streams only, see test_refused.py."""
    with triton.InferenceServerClient(probes.grpc_url) as client:
        for pattern, inputs in MISFITS.items():
            with pytest.raises(InferenceServerException, match=pattern) as caught:
                client.infer(names.PREPROCESS, inputs)
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
            assert parse_error(caught.value.message()) is None
        with pytest.raises(InferenceServerException, match="doesn't support models with decoupled"):
            client.infer(names.CHAT, [text_input(names.REQUEST, "{}")])
    probes.reload(names.PREPROCESS)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{bad", 500), (b'{"request": 5}', 500), (b'{"request": {"a": 1}}', 500), (b'{"request": ["a", "b"]}', 400)],
)
def test_a_malformed_generate_body_is_tritons_own_error(probes: Served, body: bytes, status: int) -> None:
    answer = probes.post("models/chat/generate", body)
    assert answer.status == status
    assert parse_error(answer.error) is None


def test_a_large_http_body_does_not_end_the_server(probes: Served) -> None:
    """Without the launcher's wide stacks one of 4.2 MB does."""
    assert probes.generate("x" * 16_000_000).status == 400
    assert probes.generate(Script(stream=False).to_json()).status == 200


def test_generate_is_callable_directly(probes: Served) -> None:
    plan = probes.generate(Script(deltas=2, stream=False).to_json(), model=names.PREPROCESS)
    [message] = plan.messages
    body = {name: message[name] for name in (names.PROMPT_IDS, names.PLAN)}
    answer = probes.post("models/generate/generate", body)
    assert answer.status == 200
    assert len(answer.messages[0][names.EVENTS]) == 3
    refused = probes.post("models/generate/generate", {names.PLAN: "rubbish", names.PROMPT_IDS: [1]})
    assert (refused.status, refused.error[:22]) == (400, "[invalid_request] plan")
    assert "[missing] plan: " in probes.post("models/generate/generate", {}).error


def test_the_version_can_be_named(probes: Served) -> None:
    answer = probes.generate(Script(stream=False).to_json(), model="chat/versions/1")
    assert answer.status == 200
