"""The ensemble `completions` on the real server: vllm_backend's tensors in every way that its clients send them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from jsonschema import Draft202012Validator
from tritonclient.utils import InferenceServerException

from heptagram_wire import errors as codes
from heptagram_wire import tensors as names
from heptagram_wire.errors import parse_error
from tests.server.completing import RefusedError, ask, joined, tensors
from tests.server.probe import Script
from tests.server.served import Served

pytestmark = pytest.mark.server

PROMPT = "The first three letters of the alphabet are"
DRAFTS = {names.TOTAL_DRAFT_TOKENS, names.TOTAL_ACCEPTED_DRAFT_TOKENS, names.ACCEPTANCE_RATE}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Bern"]}, "size": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.fixture
def server(shipped: Served) -> Iterator[Served]:
    yield shipped
    shipped.settle()


def complete(server: Served, **values: Any) -> list[dict[str, Any]]:
    return ask(server.grpc_url, tensors(**{names.TEXT_INPUT: PROMPT} | values))


def answer(server: Served, **values: Any) -> str:
    """Without the prompt."""
    [response] = complete(server, exclude_input_in_output=True, **values)
    return str(response[names.TEXT_OUTPUT])


def test_one_response_has_the_prompt_and_the_answer(server: Served) -> None:
    [response] = complete(server, max_tokens=12)
    assert response.keys() == {names.TEXT_OUTPUT} | DRAFTS
    assert response[names.TEXT_OUTPUT] == PROMPT + answer(server, max_tokens=12)
    assert 0 <= response[names.TOTAL_ACCEPTED_DRAFT_TOKENS] <= response[names.TOTAL_DRAFT_TOKENS]
    assert 0 <= response[names.ACCEPTANCE_RATE] <= 1


def test_streamed_and_at_once_over_grpc_and_http_it_is_one_answer(server: Served) -> None:
    whole = answer(server, max_tokens=24)
    streamed = complete(server, max_tokens=24, stream=True)
    assert len(streamed) > 2
    assert joined(streamed) == whole
    body = {names.TEXT_INPUT: PROMPT, "max_tokens": 24, "exclude_input_in_output": True}
    [message] = server.post("models/completions/generate", body).messages
    assert message[names.TEXT_OUTPUT] == whole
    nested = {names.TEXT_INPUT: PROMPT, "parameters": {"max_tokens": 24, "stream": True}}
    for form in (body | {"stream": True}, nested):
        messages = server.post("models/completions/generate_stream", form).messages
        assert len(messages) == len(streamed)
        assert joined(messages) == whole


def test_outputs_that_were_asked_for(server: Served) -> None:
    wanted = {name: True for name in names.COMPLETION_FLAGS if name.startswith("return_")}
    asked = {names.TEXT_OUTPUT, names.FINISH_REASON, names.NUM_INPUT_TOKENS, names.NUM_OUTPUT_TOKENS}
    asked |= {names.CUMULATIVE_LOGPROB}
    [whole] = complete(server, max_tokens=20, **wanted)
    assert whole.keys() == asked | DRAFTS
    assert (whole[names.FINISH_REASON], whole[names.NUM_OUTPUT_TOKENS]) == ("length", 20)
    streamed = complete(server, max_tokens=20, stream=True, **wanted)
    assert [response.keys() - DRAFTS for response in streamed] == [asked] * len(streamed)
    assert [bool(response.keys() & DRAFTS) for response in streamed] == [False] * (len(streamed) - 1) + [True]
    assert [response[names.FINISH_REASON] for response in streamed] == ["None"] * (len(streamed) - 1) + ["length"]
    assert sum(response[names.NUM_OUTPUT_TOKENS] for response in streamed) == 20
    assert {response[names.NUM_INPUT_TOKENS] for response in streamed} == {whole[names.NUM_INPUT_TOKENS]}


def test_log_probabilities_of_a_sampled_answer(server: Served) -> None:
    options = json.dumps({"logprobs": 2, "seed": 3, "temperature": "0.9", "max_tokens": 12})
    asked = {"sampling_parameters": options, "return_cumulative_logprob": True}
    [whole] = complete(server, **asked, exclude_input_in_output=True)
    entries = json.loads(whole[names.LOGPROBS])
    assert len(entries) == 12
    assert "".join(entry["token"] for entry in entries) == whole[names.TEXT_OUTPUT]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    total = sum(entry["logprob"] for entry in entries)
    assert whole[names.CUMULATIVE_LOGPROB] == pytest.approx(total, rel=1e-5)
    streamed = complete(server, **asked, stream=True)
    assert [entry for response in streamed for entry in json.loads(response[names.LOGPROBS])] == entries
    assert streamed[-1][names.CUMULATIVE_LOGPROB] == whole[names.CUMULATIVE_LOGPROB]


def test_stop_words_and_stop_end_the_answer_in_front_of_them(server: Served) -> None:
    whole = answer(server, max_tokens=24)
    stop = whole[6:10]
    expected = whole[: whole.index(stop)]
    assert answer(server, max_tokens=24, stop_words=[stop, ""]) == expected
    assert answer(server, sampling_parameters=json.dumps({"max_tokens": "24", "stop": stop})) == expected
    for reason in complete(server, max_tokens=24, stop_words=[stop], return_finish_reason=True):
        assert reason[names.FINISH_REASON] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_the_form_of_vllm_backends_sample_client(server: Served, stream: bool) -> None:
    """Several requests on one stream, told apart by their ids; the parameters as texts, twice."""
    parameters = {"temperature": "0", "top_p": "0.95", "max_tokens": "20"}
    prompts = ["Hello, my name is\n", "The most dangerous animal is\n", "The capital of France is\n"]
    results: dict[str, str] = {}

    async def play() -> None:
        async def requests() -> AsyncIterator[dict[str, Any]]:
            for number, prompt in enumerate(prompts):
                inputs = tensors(text_input=prompt, stream=stream, sampling_parameters=json.dumps(parameters))
                yield {
                    "model_name": names.COMPLETIONS,
                    "inputs": inputs,
                    "outputs": [triton_aio.InferRequestedOutput(names.TEXT_OUTPUT)],
                    "request_id": str(number),
                    "parameters": parameters,
                }

        async with triton_aio.InferenceServerClient(server.grpc_url) as client:
            async for result, error in client.stream_infer(requests()):
                assert error is None, error
                text = b"".join(result.as_numpy(names.TEXT_OUTPUT)).decode()
                id = result.get_response().id
                results[id] = results.get(id, "") + text

    asyncio.run(play())
    for number, prompt in enumerate(prompts):
        alone = answer(server, text_input=prompt, max_tokens=20)
        assert results[str(number)] == (alone if stream else prompt + alone)


def test_request_parameters_serve_without_the_tensor(server: Served) -> None:
    whole = answer(server, max_tokens=9)
    inputs = tensors(text_input=PROMPT, exclude_input_in_output=True)
    [response] = ask(server.grpc_url, inputs, parameters={"max_tokens": "9", "temperature": "0.0", "ignore_eos": False})
    assert response[names.TEXT_OUTPUT] == whole


def test_a_json_schema_guide(server: Served) -> None:
    guide = {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": json.dumps(SCHEMA)}
    text = answer(server, max_tokens=64, **guide)
    Draft202012Validator(SCHEMA).validate(json.loads(text))
    structured = json.dumps({"max_tokens": 64, "structured_outputs": json.dumps({"json": SCHEMA})})
    assert answer(server, sampling_parameters=structured) == text
    assert joined(complete(server, max_tokens=64, stream=True, **guide)) == text


@pytest.mark.parametrize(
    ("kind", "guide", "expected"),
    [
        ("regex", r"[A-Z][a-z]{3,8} \d{2}(?:,|;) (é|ü)+!", r"[A-Z][a-z]{3,8} [0-9]{2}(?:,|;) (é|ü)+!"),
        (
            "ebnf_grammar",
            'root ::= "say " word (" and " word)? "."\nword ::= [a-f]{2,5}',
            r"say [a-f]+( and [a-f]+)?\.",
        ),
    ],
)
def test_other_guides(server: Served, kind: str, guide: str, expected: str) -> None:
    [response] = complete(
        server,
        max_tokens=64,
        exclude_input_in_output=True,
        return_finish_reason=True,
        guided_decoding_guide_type=kind,
        guided_decoding_guide=guide,
    )
    if response[names.FINISH_REASON] == "stop":
        assert re.fullmatch(expected, response[names.TEXT_OUTPUT])
    else:
        assert kind == "regex"  # its last part has no end


def test_any_json_and_a_choice(server: Served) -> None:
    text = answer(server, max_tokens=64, guided_decoding_guide_type="json", stop_words=["}"])
    assert text.startswith("{")
    options = json.dumps({"structured_outputs": {"choice": ["yes", "no", "né"]}})
    assert answer(server, sampling_parameters=options) in ("yes", "no", "né")


@pytest.mark.parametrize(
    ("values", "code", "param"),
    [
        ({"temperature": 2.5}, codes.INVALID_VALUE, "temperature"),
        ({"sampling_parameters": '{"n": "17"}'}, codes.TOO_MANY_CHOICES, "n"),
        ({"sampling_parameters": '{"max_tokenz": 5}'}, codes.UNKNOWN_FIELD, "max_tokenz"),
        ({"sampling_parameters": '{"max_tokens": 5}', "max_tokens": 6}, codes.INVALID_VALUE, "max_tokens"),
        ({"sampling_parameters": "["}, codes.INVALID_JSON, "sampling_parameters"),
        ({"max_tokens": 0}, codes.INVALID_VALUE, "max_tokens"),
        ({"max_tokens": -4}, codes.INVALID_VALUE, "max_tokens"),
        ({"top_p": float("nan")}, codes.INVALID_VALUE, "top_p"),
        ({"text_input": ""}, codes.INVALID_VALUE, "text_input"),
        ({"text_input": "a " * 5000}, codes.CONTEXT_LENGTH, "text_input"),
        ({"stream": True, "exclude_input_in_output": False}, codes.INVALID_VALUE, "exclude_input_in_output"),
        ({"guided_decoding_guide_type": "json_schema"}, codes.MISSING, "guided_decoding_guide"),
        ({"guided_decoding_guide_type": "xml"}, codes.INVALID_VALUE, "guided_decoding_guide_type"),
        (
            {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": '{"not": {}}'},
            codes.UNSUPPORTED_SCHEMA,
            "guided_decoding_guide",
        ),
        (
            {"guided_decoding_guide_type": "ebnf_grammar", "guided_decoding_guide": "root ::= nowhere"},
            codes.UNSUPPORTED_SCHEMA,
            None,
        ),
        (
            {"guided_decoding_guide_type": "ebnf_grammar", "guided_decoding_guide": 'root ::= "a" root'},
            codes.UNSUPPORTED_SCHEMA,
            None,
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_refused_before_anything_streams(
    server: Served, values: dict[str, Any], code: str, param: str | None, stream: bool
) -> None:
    wanted = {names.TEXT_INPUT: PROMPT, names.STREAM: stream} | values
    with pytest.raises(RefusedError) as caught:
        ask(server.grpc_url, tensors(**wanted))
    wire = parse_error(str(caught.value))
    assert wire is not None
    assert (wire.code, wire.param) == (code, param)
    if not any(value != value for value in wanted.values()):  # JSON has no NaN
        refused = server.post(f"models/completions/generate{'_stream' if stream else ''}", wanted)
        assert refused.status == 400
        assert parse_error(refused.error) == wire


def test_a_missing_prompt_is_our_400_and_an_unlisted_input_tritons(server: Served) -> None:
    with pytest.raises(RefusedError, match=r"\[missing\] text_input: "):
        ask(server.grpc_url, tensors(stream=True))
    with (
        triton.InferenceServerClient(server.grpc_url) as client,
        pytest.raises(InferenceServerException, match="unexpected inference input 'bad_words'"),
    ):
        client.infer(names.PREPROCESS, tensors(text_input=PROMPT, bad_words="x"))
    answered = server.post("models/completions/generate", {names.TEXT_INPUT: PROMPT, "lora": "x"})
    assert (answered.status, "[unknown_field] lora: " in answered.error) == (400, True)


def test_a_raw_prompt_reads_control_tokens(server: Served) -> None:
    """So a client can render a chat template by itself; `chat` is the one that guards its users' text."""
    rendered = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    counts = {"return_num_input_tokens": True, "return_finish_reason": True}
    [response] = complete(server, text_input=rendered, max_tokens=48, **counts)
    assert response[names.NUM_INPUT_TOKENS] < 16
    assert response[names.TEXT_OUTPUT].startswith(rendered)


def test_a_cancel_in_mid_stream_frees_everything(server: Served) -> None:
    before = server.settle()
    options = json.dumps({"ignore_eos": True, "max_tokens": 1500})
    inputs = tensors(text_input="One, two, three,", stream=True, sampling_parameters=options)
    for responses in (1, 4):
        with server.stream(*inputs, model=names.COMPLETIONS) as stream:
            for _ in range(responses):
                stream.next()
            stream.cancel()
    guided = tensors(
        text_input=PROMPT, stream=True, max_tokens=1500, guided_decoding_guide_type="regex", guided_decoding_guide="a*"
    )
    with server.stream(*guided, model=names.COMPLETIONS) as stream:
        stream.next()
        stream.next()
    server.settle(5.0)
    server.grown("requests_cancelled_total", before, 3)
    server.reload(names.COMPLETIONS)
    assert answer(server, max_tokens=4)


def scripted(probes: Served, script: Script, **values: Any) -> list[dict[str, Any]]:
    return ask(probes.grpc_url, tensors(text_input=script.to_json(), return_finish_reason=True, **values))


def test_start_and_pings_are_empty_texts(probes: Served) -> None:
    responses = scripted(probes, Script(deltas=1, wait_ms=60), stream=True)
    assert len(responses) > 3
    first, *_, last = responses
    assert (first[names.TEXT_OUTPUT], first[names.FINISH_REASON]) == ("", "None")
    assert (last[names.TEXT_OUTPUT], last[names.FINISH_REASON]) == ("", "stop")
    assert joined(responses) == "0 "


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script", [Script(fail_after=2), Script(fail_before_start=True), Script(refuse="overloaded"), Script(refuse="bug")]
)
def test_a_failure_at_any_time_is_an_error_and_leaks_nothing(probes: Served, script: Script, stream: bool) -> None:
    for _ in range(3):
        with pytest.raises(RefusedError) as caught:
            scripted(probes, script, stream=stream)
        assert parse_error(str(caught.value)) is not None
    probes.settle()
    probes.reload(names.COMPLETIONS)


def test_fifty_short_requests_leak_nothing(probes: Served) -> None:
    for number in range(50):
        assert scripted(probes, Script(deltas=2, step_ms=0), stream=bool(number % 2))
    probes.settle()
    probes.reload(names.COMPLETIONS)
    assert scripted(probes, Script(deltas=1))[-1][names.FINISH_REASON] == "stop"
