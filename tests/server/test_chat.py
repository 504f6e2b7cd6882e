"""The shipped repository on the real server: a real model, and every promise about one request that goes wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from heptagram_client import ChatMessage, Client, RequestRefusedError, fold
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names
from heptagram_wire.codec import decode_event
from heptagram_wire.errors import WireError, parse_error
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, Start, TextDelta
from tests.server.served import Served, number_input, text_input

pytestmark = pytest.mark.server

SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "integer", "minimum": 1, "maximum": 600}},
    "required": ["command"],
    "additionalProperties": False,
}


def tool(name: str = "shell", parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    function = {"name": name, "description": "Run a command", "parameters": parameters or SHELL, "strict": True}
    return {"type": "function", "function": function}


def ask(text: str = "List the files in /tmp.", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 96, **fields}


def strict(text: str = "List the files in /tmp.", **fields: Any) -> dict[str, Any]:
    return ask(text, tools=[tool()], tool_choice="required", **fields)


# Text that goes on for long enough to be interrupted.
ENDLESS = ask("Count from one to one thousand in words.", max_tokens=1500, ignore_eos=True)


@pytest.fixture(autouse=True)
def at_rest_and_serving(shipped: Served) -> Iterator[None]:
    """Whatever a test did: nothing is left alive in the engine, and a strict request works."""
    yield
    shipped.settle()
    with Client(shipped.grpc_url) as client:
        valid(client.complete(strict()))


def valid(message: ChatMessage) -> None:
    """The answer is finished calls of the shell tool, each one valid."""
    assert message.finish_reason == "tool_calls"
    for call in message.tool_calls:
        assert call.name == "shell"
        Draft202012Validator(SHELL).validate(call.parse_arguments())


def refused(shipped: Served, request: dict[str, Any]) -> RequestRefusedError:
    with Client(shipped.grpc_url) as client, pytest.raises(RequestRefusedError) as caught:
        client.complete(request)
    return caught.value


def ended(shipped: Served, before: dict[str, float], count: int = 1) -> None:
    shipped.settle(5.0)
    shipped.grown("requests_cancelled_total", before, count)


def test_eight_streams_at_once_are_in_order_and_valid(shipped: Served) -> None:
    before = shipped.settle()

    def play(number: int) -> list[Event]:
        with Client(shipped.grpc_url) as client, client.stream(strict(f"Print the number {number}.")) as stream:
            return list(stream)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(play, range(8)))
    for events in answers:
        assert isinstance(events[0], Start)
        assert isinstance(events[-1], Finish)
        calls = [event for event in events if isinstance(event, CallStart | ArgumentsDelta | CallEnd)]
        assert [event.index for event in calls] == sorted(event.index for event in calls)
        valid(fold(events))
    starts = [event.id for events in answers for event in events if isinstance(event, Start)]
    assert len(set(starts)) == 8
    shipped.grown("request_success_total", before, 8)
    after = shipped.metrics()
    assert after["generation_tokens_total"] > before["generation_tokens_total"]
    assert after["invalid_outputs_total"] == before["invalid_outputs_total"]


def test_the_same_request_gives_the_same_answer_alone_and_in_company(shipped: Served) -> None:
    with Client(shipped.grpc_url) as client, ThreadPoolExecutor(4) as pool:
        alone = client.complete(strict())
        company = list(pool.map(client.complete, [strict(), ask("Hello!"), strict(), strict("Print the date.")]))
    assert [call.arguments for call in company[0].tool_calls] == [call.arguments for call in alone.tool_calls]
    assert [call.arguments for call in company[2].tool_calls] == [call.arguments for call in alone.tool_calls]


def test_http_gives_the_same_answer_streamed_and_at_once(shipped: Served) -> None:
    at_once = shipped.generate(json.dumps(strict(stream=False)))
    assert at_once.status == 200
    whole = [decode_event(text) for text in at_once.messages[0][names.EVENTS]]
    assert not [event for event in whole if isinstance(event, Start)]
    streamed = shipped.generate(json.dumps(strict()), stream=True)
    pieces: list[Event] = []
    for message in streamed.messages:
        events = message.get(names.EVENTS, [])
        pieces += [decode_event(text) for text in ([events] if isinstance(events, str) else events)]
    assert [call.arguments for call in fold(pieces).tool_calls] == [call.arguments for call in fold(whole).tool_calls]


def test_a_killed_client(shipped: Served) -> None:
    before = shipped.settle()
    with shipped.doomed_client(json.dumps(ENDLESS), responses=3) as client:
        client.kill()
        client.wait()
        ended(shipped, before)


def test_a_cancelled_stream(shipped: Served) -> None:
    before = shipped.settle()
    with Client(shipped.grpc_url) as client, client.stream(ENDLESS) as stream:
        for event in stream:
            if isinstance(event, TextDelta):
                break
    ended(shipped, before)


def test_a_cancel_in_the_queue_and_in_prefill(shipped: Served) -> None:
    """All slots are taken, so that some wait, and prompts are long, so that some are being written."""
    before = shipped.settle()
    long = ask("word " * 1500, max_tokens=300, ignore_eos=True)
    streams = [shipped.chat(json.dumps(long)) for _ in range(12)]
    for stream in streams:
        assert isinstance(stream.next().events[0], Start)
    assert shipped.metrics()["num_requests_waiting"] >= 1
    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(lambda stream: stream.__exit__(None, None, None), streams))
    ended(shipped, before, len(streams))


def test_an_explicit_stop(shipped: Served) -> None:
    with Client(shipped.grpc_url) as client, client.stream(ENDLESS) as stream:
        events: list[Event] = []
        for event in stream:
            events.append(event)
            if isinstance(event, Start):
                path = f"models/generate/versions/{event.version}/generate"
                assert shipped.post(path, {names.ID: event.id, names.STOP: True}).status == 200
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "cancelled"


def test_a_sampled_answer_can_be_had_again_by_its_seed(shipped: Served) -> None:
    request = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 24,
        "temperature": 1.2,
        "top_p": 0.95,
        "logprobs": True,
        "top_logprobs": 2,
    }
    answers: list[ChatMessage] = []
    for seed in (None, None, 0):
        again = {} if seed is None else {"seed": answers[1].stats.seed, "heptagram": {"num_speculative_tokens": 0}}
        with shipped.chat(json.dumps(request | again)) as stream:
            answers.append(fold(event for response in stream.rest() for event in response.events))
    first, second, third = answers
    assert first.stats.seed != second.stats.seed == third.stats.seed
    assert first.content != second.content == third.content
    assert third.logprobs == second.logprobs
    assert second.logprobs is not None
    raw = b"".join(bytes(entry.bytes or ()) for entry in second.logprobs)
    assert raw.decode(errors="replace") == second.content


@pytest.mark.parametrize("streams", [True, False])
def test_a_deadline(shipped: Served, streams: bool) -> None:
    request = json.dumps({**ENDLESS, "stream": streams, "heptagram": {"deadline_ms": 700}})
    began = time.monotonic()
    with shipped.chat(request) as stream:
        last = stream.rest()[-1].events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "deadline"
    assert 0.6 < time.monotonic() - began < 5.0


@pytest.mark.parametrize(
    ("request_fields", "code", "param"),
    [
        ({"temprature": 0}, codes.UNKNOWN_FIELD, "temprature"),
        ({"n": 17}, codes.TOO_MANY_CHOICES, "n"),
        (
            {"tools": [tool(parameters={"type": "nonsense"})], "tool_choice": "required"},
            None,
            "tools[0].function.param",
        ),
        ({"tools": [tool(parameters={"$ref": "#"})], "tool_choice": "required"}, None, "tools[0].function.param"),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "absent"}}},
            None,
            "tool_choice",
        ),
        ({"messages": []}, None, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 5_000_000}]}, codes.REQUEST_TOO_LARGE, ""),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, codes.CONTEXT_LENGTH, "messages"),
    ],
    ids=["unknown", "unsupported", "bad-schema", "endless-schema", "no-such-tool", "empty", "oversized", "too-long"],
)
def test_a_request_that_cannot_be_served_is_a_400_with_its_place(
    shipped: Served, request_fields: dict[str, Any], code: str | None, param: str
) -> None:
    request = {**ask(), **request_fields}
    told = refused(shipped, request)
    error = WireError(told.code, told.message, told.param)
    assert code in (None, error.code)
    assert (error.param or "").startswith(param)
    answer = shipped.generate(json.dumps(request))
    assert answer.status == 400
    assert parse_error(answer.error) == error


def test_a_missing_input_is_our_400(shipped: Served) -> None:
    answer = shipped.post("models/chat/generate", {})
    assert (answer.status, parse_error(answer.error) is not None) == (400, True)
    assert "[missing] request: " in answer.error


def test_generate_refuses_a_plan_that_was_not_made_for_it(shipped: Served) -> None:
    message = shipped.generate(json.dumps(strict(stream=False)), model=names.PREPROCESS).messages[0]
    plan = json.loads(message[names.PLAN])
    good = {names.PROMPT_IDS: message[names.PROMPT_IDS], names.PLAN: message[names.PLAN]}
    assert shipped.post("models/generate/generate", good).status == 200
    other = good | {names.PLAN: json.dumps(plan | {"vocabulary": "sha256:another"})}
    for body in (other, good | {names.PROMPT_IDS: [-1]}, good | {names.PLAN: "{}"}):
        answer = shipped.post("models/generate/generate", body)
        assert answer.status == 400
        assert parse_error(answer.error) is not None


def test_generate_called_directly_sees_its_own_cancel(shipped: Served) -> None:
    before = shipped.settle()
    message = shipped.generate(json.dumps(ENDLESS), model=names.PREPROCESS).messages[0]
    ids = number_input(names.PROMPT_IDS, np.array(message[names.PROMPT_IDS], dtype=np.int32))
    with shipped.stream(ids, text_input(names.PLAN, message[names.PLAN]), model=names.GENERATE) as stream:
        assert isinstance(stream.next().events[0], Start)
    ended(shipped, before)


def test_a_failure_that_only_one_request_causes_harms_no_other(shipped: Served) -> None:
    with Client(shipped.grpc_url) as client, ThreadPoolExecutor(2) as pool:
        good = pool.submit(client.complete, strict())
        with pytest.raises(RequestRefusedError):
            client.complete(ask(unknown=1))
        valid(good.result())


def test_afterwards_the_ensemble_unloads_and_serves_again(shipped: Served) -> None:
    for _ in range(3):
        with shipped.chat(json.dumps(ENDLESS)) as stream:
            stream.next()
    shipped.settle()
    shipped.reload()
    with Client(shipped.grpc_url) as client:
        assert client.complete({**ENDLESS, "heptagram": {"deadline_ms": 300}}).finish_reason == "deadline"
