"""The inputs of a completion: where a field may stand, in which type, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes
from tests.completions.asking import parse, refused


def test_the_least_request() -> None:
    request = parse()
    assert (request.text, request.stream, request.echo, request.max_tokens) == ("hi", False, True, 16)
    assert request.constraint is None


@pytest.mark.parametrize(
    ("tensors", "echo"),
    [
        ({}, True),
        ({"exclude_input_in_output": True}, False),
        ({"stream": True}, False),
        ({"stream": True, "exclude_input_in_output": True}, False),
    ],
)
def test_only_an_answer_at_once_repeats_the_prompt(tensors: dict[str, Any], echo: bool) -> None:
    assert parse(**tensors).echo is echo


@pytest.mark.parametrize(
    ("sampling", "name", "value"),
    [
        ({"max_tokens": "16"}, "max_tokens", 16),
        ({"max_tokens": 16.0}, "max_tokens", 16),
        ({"ignore_eos": "true"}, "ignore_eos", True),
        ({"ignore_eos": "False"}, "ignore_eos", False),
        ({"ignore_eos": 1}, "ignore_eos", True),
        ({"stop": "END"}, "stop", ("END",)),
        ({"stop": ["a", "b", "a"]}, "stop", ("a", "b")),
        ({"stop_token_ids": "[1, 2]"}, "stop_token_ids", (1, 2)),
        ({"heptagram": '{"num_speculative_tokens": 0}'}, "num_speculative_tokens", 0),
        ({"heptagram": {"drafts": "none", "deadline_ms": 50}}, "deadline_ms", 50),
        ({"priority": "-3"}, "priority", -3),
    ],
)
def test_texts_are_read_as_the_type_of_their_field(sampling: dict[str, Any], name: str, value: object) -> None:
    assert getattr(parse(sampling), name) == value
    assert getattr(parse(parameters=sampling), name) == value


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": "0", "top_k": "-1", "min_p": 0, "top_p": "1"},
        {"presence_penalty": "0.0", "repetition_penalty": "1", "n": "1", "best_of": 1, "min_tokens": "0"},
        {"detokenize": "true", "skip_special_tokens": True, "include_stop_str_in_output": "false"},
        {"spaces_between_special_tokens": False, "logit_bias": {}, "bad_words": [], "logprobs": None},
    ],
)
def test_what_changes_nothing_is_accepted(sampling: dict[str, Any]) -> None:
    assert parse(sampling) == parse()


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        ({"best_of": "2"}, "best_of"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"prompt_logprobs": "5"}, "prompt_logprobs"),
        ({"include_stop_str_in_output": "true"}, "include_stop_str_in_output"),
        ({"detokenize": False}, "detokenize"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"lora_name": "x"}, "lora_name"),
        ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ({"heptagram": {"tool_markup": "free"}}, "heptagram.tool_markup"),
    ],
)
def test_what_is_not_there_is_refused_by_name(sampling: dict[str, Any], param: str) -> None:
    wire = refused(sampling)
    assert (wire.code, wire.param) == (codes.UNSUPPORTED, param)


@pytest.mark.parametrize(
    ("sampling", "code", "param"),
    [
        ({"max_tokens": "many"}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": "1e3"}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": "٣"}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": 2.5}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": True}, codes.INVALID_TYPE, "max_tokens"),
        ({"max_tokens": -2147483648}, codes.INVALID_VALUE, "max_tokens"),
        ({"temperature": "nan"}, codes.INVALID_TYPE, "temperature"),
        ({"temperature": "1e999"}, codes.INVALID_TYPE, "temperature"),
        ({"top_p": 1.5}, codes.INVALID_VALUE, "top_p"),
        ({"ignore_eos": "yes"}, codes.INVALID_TYPE, "ignore_eos"),
        ({"seed": 2**64}, codes.INVALID_VALUE, "seed"),
        ({"stop": ""}, codes.INVALID_VALUE, "stop"),
        ({"stop_token_ids": "1]"}, codes.INVALID_JSON, "stop_token_ids"),
        ({"maxtokens": 5}, codes.UNKNOWN_FIELD, "maxtokens"),
        ({"stream": True}, codes.UNKNOWN_FIELD, "stream"),
        ("nonsense", codes.INVALID_JSON, "sampling_parameters"),
        ('{"n": 1, "n": 1}', codes.INVALID_JSON, "sampling_parameters"),
        ("[]", codes.INVALID_TYPE, "sampling_parameters"),
        ("[" * 5000, codes.REQUEST_TOO_DEEP, "sampling_parameters"),
    ],
)
def test_faults_name_the_field(sampling: Any, code: str, param: str) -> None:
    wire = refused(sampling)
    assert (wire.code, wire.param) == (code, param)


def test_a_field_in_several_places_must_agree() -> None:
    assert parse({"max_tokens": "7"}, max_tokens=7, parameters={"max_tokens": "7"}).max_tokens == 7
    assert parse({"top_p": "0.95"}, top_p=0.949999988079071).sampling.top_p == 0.949999988079071
    for request in ({"max_tokens": 8}, {"max_tokens": "8"}):
        wire = refused(request, max_tokens=7)
        assert (wire.code, wire.param) == (codes.INVALID_VALUE, "max_tokens")
    assert refused(parameters={"temperature": "0", "oops": 1}).code == codes.UNKNOWN_FIELD


def test_stop_words_join_stop_and_empty_ones_mean_none() -> None:
    assert parse({"stop": ["a"]}, stop_words=("b", "", "a")).stop == ("a", "b")
    assert parse(stop_words=("",)).stop == ()
    assert refused(stop_words=("x" * 1000,)).param == "stop_words"


def test_a_prompt_may_not_be_missing_or_too_long() -> None:
    assert refused(text_input=None).code == codes.MISSING
    assert refused(text_input="x" * (5 << 20)).code == codes.REQUEST_TOO_LARGE


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_NAMES = """
    max_tokens temperature top_k seed stop stop_token_ids ignore_eos structured_outputs guided_decoding heptagram
    logit_bias bad_words n logprobs priority
"""


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES.split()) | st.text(max_size=5), _JSON, max_size=3))
def test_whatever_comes_a_request_or_a_request_error_goes(sampling: dict[str, Any]) -> None:
    for way in ({"parameters": sampling}, {"sampling_parameters": json.dumps(sampling)}):
        try:
            parse(**way)
        except RequestError as error:
            assert error.wire.format()  # noqa: PT017 - many of them are valid
