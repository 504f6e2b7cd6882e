"""The fields that shape sampling, in chats and in completions: what they become, and how wrong ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.generation import SamplingParams, TokenBias
from heptagram_wire import errors as codes
from tests.completions.asking import parse as parse_completion
from tests.completions.asking import refused as refused_completion
from tests.preprocess.asking import body, parse, refused

EVERYTHING: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.25,
    "seed": 7,
    "logit_bias": {"0": -100, "49151": 2.5},
}
PARAMS = SamplingParams(
    temperature=0.7,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    repetition_penalty=1.1,
    presence_penalty=-0.5,
    frequency_penalty=0.25,
    seed=7,
    logit_bias=(TokenBias(0, -100.0), TokenBias(49151, 2.5)),
)


def test_every_field_arrives() -> None:
    assert parse(body(**EVERYTHING)).sampling == PARAMS
    assert parse_completion(EVERYTHING).sampling == PARAMS
    texts = {name: json.dumps(value) for name, value in EVERYTHING.items()}
    assert parse_completion(texts).sampling == PARAMS
    assert parse_completion(parameters=texts).sampling == PARAMS


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": None, "top_k": -1, "logit_bias": None, "seed": None},
        {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "n": 1},
    ],
)
def test_what_changes_nothing_leaves_the_defaults(fields: dict[str, Any]) -> None:
    request = parse(body(**fields))
    assert (request.sampling, request.logprobs) == (SamplingParams(), None)
    assert request.sampling.is_greedy
    assert parse_completion(fields).sampling == SamplingParams()


@pytest.mark.parametrize(
    ("fields", "greedy"),
    [
        ({"top_p": 0.1, "top_k": 5, "min_p": 0.3, "seed": 1}, True),  # of one candidate
        ({"temperature": 1e-9}, False),
        ({"presence_penalty": 0.1}, False),
        ({"logit_bias": {"3": 1}}, False),
    ],
)
def test_without_temperature_only_penalties_and_biases_change_the_choice(fields: dict[str, Any], greedy: bool) -> None:
    assert parse(body(**fields)).sampling.is_greedy is greedy


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 2.1}, codes.INVALID_VALUE, "temperature"),
        ({"temperature": -0.1}, codes.INVALID_VALUE, "temperature"),
        ({"temperature": True}, codes.INVALID_TYPE, "temperature"),
        ({"top_p": 0}, codes.INVALID_VALUE, "top_p"),
        ({"top_p": 1.5}, codes.INVALID_VALUE, "top_p"),
        ({"top_k": -2}, codes.INVALID_VALUE, "top_k"),
        ({"top_k": 2.5}, codes.INVALID_TYPE, "top_k"),
        ({"min_p": 1.01}, codes.INVALID_VALUE, "min_p"),
        ({"min_p": -0.01}, codes.INVALID_VALUE, "min_p"),
        ({"repetition_penalty": 0}, codes.INVALID_VALUE, "repetition_penalty"),
        ({"repetition_penalty": 2.5}, codes.INVALID_VALUE, "repetition_penalty"),
        ({"presence_penalty": 9}, codes.INVALID_VALUE, "presence_penalty"),
        ({"frequency_penalty": -3}, codes.INVALID_VALUE, "frequency_penalty"),
        ({"seed": 2**64}, codes.INVALID_VALUE, "seed"),
        ({"seed": -(2**63) - 1}, codes.INVALID_VALUE, "seed"),
        ({"seed": 0.5}, codes.INVALID_TYPE, "seed"),
        ({"logit_bias": [1]}, codes.INVALID_TYPE, "logit_bias"),
        ({"logit_bias": {"x": 1}}, codes.INVALID_VALUE, "logit_bias"),
        ({"logit_bias": {"01": 1}}, codes.INVALID_VALUE, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, codes.INVALID_VALUE, "logit_bias"),
        ({"logit_bias": {"5": 101}}, codes.INVALID_VALUE, "logit_bias.5"),
        ({"logit_bias": {"5": "1"}}, codes.INVALID_TYPE, "logit_bias.5"),
        ({"logit_bias": {str(token): 1 for token in range(301)}}, codes.INVALID_VALUE, "logit_bias"),
    ],
)
def test_wrong_values_are_named_in_both_kinds(fields: dict[str, Any], code: str, param: str) -> None:
    for wire in (refused(body(**fields)), refused_completion(fields)):
        assert (wire.code, wire.param) == (code, param)


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"logprobs": False, "top_logprobs": 0}, None),
    ],
)
def test_log_probabilities_of_a_chat(fields: dict[str, Any], count: int | None) -> None:
    assert parse(body(**fields)).logprobs == count


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"top_logprobs": 3}, codes.INVALID_VALUE, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 3}, codes.INVALID_VALUE, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, codes.INVALID_VALUE, "top_logprobs"),
        ({"logprobs": 3}, codes.INVALID_TYPE, "logprobs"),
    ],
)
def test_wrong_log_probabilities_of_a_chat(fields: dict[str, Any], code: str, param: str) -> None:
    wire = refused(body(**fields))
    assert (wire.code, wire.param) == (code, param)


def test_log_probabilities_of_a_completion() -> None:
    assert parse_completion({"logprobs": "3"}).logprobs == 3
    assert parse_completion(return_cumulative_logprob=True).cumulative_logprob
    assert refused_completion({"logprobs": 21}).param == "logprobs"
    assert refused_completion({"logprobs": True}).code == codes.INVALID_TYPE
    assert refused_completion({"top_logprobs": 3}).code == codes.UNKNOWN_FIELD


def test_several_answers_are_asked_for_in_chats_and_in_completions() -> None:
    assert parse(body()).n == parse(body(n=None)).n == parse_completion({}).n == 1
    assert parse(body(n=3)).n == parse_completion({"n": 3}).n == parse_completion({"n": "3"}).n == 3
