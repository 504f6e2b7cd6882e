"""A completion's events as tensors: what each response holds, and how failures leave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.generation import CompletionOutput, GenerationRequest, OutputSpec
from heptagram_backend.triton.render import CompletionRenderer
from heptagram_backend.triton.sink import ResponseSink
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names
from heptagram_wire.events import (
    ChoiceEnd,
    Failure,
    Finish,
    Ping,
    ReasoningDelta,
    SpeculativeStats,
    Start,
    Stats,
    TextDelta,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from tests.triton.fake_pb_utils import Sender, TritonError

START = Start("id", "model", "1", 3, 8)
END = Finish("length", Usage(3, 5), Stats(speculative_decoding=SpeculativeStats((1, 0, 2, 0, 0, 0, 0, 0), 8)))


def request(stream: bool, n: int = 1, **asked: Any) -> GenerationRequest:
    return GenerationRequest(
        n=n,
        prompt_ids=(1, 2, 3),
        output=OutputSpec("probe"),
        model="m",
        max_tokens=8,
        stream=stream,
        completion=CompletionOutput(**asked),
    )


def played(work: GenerationRequest, *steps: list[Any]) -> list[dict[str, Any]]:
    """Each response's outputs as plain lists, or its error."""
    sender = Sender()
    sink = ResponseSink(sender, ticket="t", stream=work.stream, renderer=CompletionRenderer(work), closed=lambda: None)
    for number, events in enumerate(steps):
        sink.send(events, final=number == len(steps) - 1)
    assert [final for _, final in sender.sent] == [False] * (len(sender.sent) - 1) + [True]
    return [
        {"error": response.error}
        if response.error
        else {name: each.tolist() for name, each in response.outputs.items()}
        for response, _ in sender.sent
    ]


def test_a_stream_of_deltas_with_everything_asked_for() -> None:
    work = request(True, finish_reason=True, num_input_tokens=True, num_output_tokens=True)
    first, ping, delta, last = played(
        work,
        [START],
        [Ping()],
        [ReasoningDelta("so ", token_ids=(7,)), TextDelta("a", token_ids=(8, 9))],
        [TextDelta("b", token_ids=(4,)), END],
    )
    empty = {"text_output": [b""], "finish_reason": [b"None"], "num_input_tokens": [3], "num_output_tokens": [0]}
    assert first == ping == empty | {"ticket": [b"t"]}
    assert (delta["text_output"], delta["num_output_tokens"]) == ([b"so a"], [3])
    assert (last["text_output"], last["finish_reason"], last["num_output_tokens"]) == ([b"b"], [b"length"], [2])
    assert (last["total_draft_tokens"], last["total_accepted_draft_tokens"]) == ([8], [4])
    assert last["acceptance_rate"] == [0.5]


def test_without_stream_there_is_one_response_and_only_what_was_asked_for() -> None:
    [only] = played(request(False, prompt="Hi: "), [START], [Ping()], [TextDelta("a")], [TextDelta("é"), END])
    assert only["text_output"] == ["Hi: aé".encode()]
    assert only.keys() == {
        names.TEXT_OUTPUT,
        names.TICKET,
        names.TOTAL_DRAFT_TOKENS,
        names.TOTAL_ACCEPTED_DRAFT_TOKENS,
        names.ACCEPTANCE_RATE,
    }


def test_log_probabilities_of_each_response_and_of_all_so_far() -> None:
    entries = [TokenLogprob("a", 8, -0.5, (97,)), TokenLogprob("b", 9, -0.25, (98,), (TopLogprob("c", 7, -0.1),))]
    work = request(True, cumulative_logprob=True, logprobs=True)
    first, delta, last = played(
        work, [START], [TextDelta("a", logprobs=(entries[0],))], [TextDelta("b", logprobs=(entries[1],)), END]
    )
    assert [each["cumulative_logprob"] for each in (first, delta, last)] == [[0.0], [-0.5], [-0.75]]
    told = [json.loads(each["logprobs"][0]) for each in (first, delta, last)]
    assert told[0] == []
    assert told[1] == [{"token": "a", "token_id": 8, "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    assert told[2][0]["top_logprobs"] == [{"token": "c", "token_id": 7, "logprob": -0.1}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_behind_text_is_an_error_too(stream: bool) -> None:
    failure = Failure(codes.INVALID_OUTPUT, "no")
    *_, last = played(request(stream), [START], [TextDelta("a")], [TextDelta("b"), failure])
    assert (last["error"].text, last["error"].code) == ("[invalid_output] -: no", TritonError.INTERNAL)


def test_the_plan_carries_what_was_asked_for() -> None:
    work = request(True, prompt="é", num_output_tokens=True)
    assert GenerationRequest.from_json(work.to_json(), work.prompt_ids) == work


SEVERAL: list[list[Any]] = [
    [TextDelta("a", token_ids=(8,)), TextDelta("b", token_ids=(9, 7), choice=1)],
    [TextDelta("c", token_ids=(6,), choice=1), ChoiceEnd("stop", 4, choice=1)],
    [TextDelta("d", token_ids=(5,)), ChoiceEnd("length", 2), Finish("length", Usage(3, 6))],
]


def test_several_answers_stand_side_by_side() -> None:
    work = request(True, 2, finish_reason=True, num_input_tokens=True, num_output_tokens=True, cumulative_logprob=True)
    told = played(work, [START], *SEVERAL)
    assert [each["text_output"] for each in told] == [[b"", b""], [b"a", b"b"], [b"", b"c"], [b"d", b""]]
    reasons = [each["finish_reason"] for each in told]
    assert reasons == [[b"None"] * 2, [b"None"] * 2, [b"None", b"stop"], [b"length", b"None"]]
    assert [each["num_output_tokens"] for each in told] == [[0, 0], [1, 2], [0, 2], [1, 0]], "a stop token counts"
    assert all(each["num_input_tokens"] == [3] and len(each["cumulative_logprob"]) == 2 for each in told)


def test_several_answers_without_stream_are_one_response() -> None:
    work = request(False, 2, prompt="Hi: ", finish_reason=True, num_output_tokens=True, logprobs=True)
    [only] = played(work, [START], *SEVERAL)
    assert only["text_output"] == [b"Hi: ad", b"Hi: bc"]
    assert only["finish_reason"] == [b"length", b"stop"]
    assert only["num_output_tokens"] == [2, 4]
    assert only["logprobs"] == [b"[]", b"[]"]
