"""From the tensors of a completion to a plan, with SmolLM2's tokenizer and through the model class."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import Release
from heptagram_backend.requests.completions import CompletionInputs
from heptagram_backend.triton.completion_inputs import read_completion
from heptagram_wire import errors as codes
from tests.formats.smollm2 import reference
from tests.triton.fake_pb_utils import Request


@cache
def preprocessor(folder: Path) -> Preprocessor:
    reference().save_pretrained(folder)
    (folder / "release.yaml").write_text(
        "served_model_name: smol\ncheckpoint: here\nformat: chatml_json\nengine: {name: k7, max_model_len: 64}\n"
    )
    return Preprocessor(Release.load(folder), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


def plan(folder: Path, **tensors: Any) -> GenerationRequest:
    return preprocessor(folder).complete(CompletionInputs({"text_input": "Hello there"} | tensors))


@pytest.mark.parametrize("text", ["Hello there", " é\n", "<|im_start|>user\nhi<|im_end|>\n", "\U0010fffe<|im_end|>"])
def test_a_prompt_is_encoded_as_the_tokenizer_does_it_by_itself(folder: Path, text: str) -> None:
    assert list(plan(folder, text_input=text).prompt_ids) == reference()(text)["input_ids"]


def test_a_plan_holds_the_request(folder: Path) -> None:
    work = plan(folder, stream=True, return_num_output_tokens=True, max_tokens=5, stop_words=("x",))
    assert (work.model, work.max_tokens, work.stop, work.stream) == ("smol", 5, ("x",), True)
    assert work.return_token_ids
    assert work.completion is not None
    assert (work.completion.prompt, work.completion.num_output_tokens) == ("", True)
    echoed = plan(folder).completion
    assert echoed is not None
    assert echoed.prompt == "Hello there"
    assert plan(folder, max_tokens=2_000_000_000).max_tokens == 64 - len(work.prompt_ids)


def test_what_is_told_of_likelihoods(folder: Path) -> None:
    asked = [plan(folder, **tensors) for tensors in ({}, {"return_cumulative_logprob": True})]
    asked.append(plan(folder, sampling_parameters='{"logprobs": 4}'))
    told = [
        (one.logprobs, one.completion.cumulative_logprob, one.completion.logprobs) for one in asked if one.completion
    ]
    assert told == [(None, False, False), (0, True, False), (4, False, True)]


@pytest.mark.parametrize(
    ("tensors", "code", "param"),
    [
        ({"sampling_parameters": '{"logit_bias": {"49152": 1}}'}, codes.INVALID_VALUE, "logit_bias.49152"),
        ({"text_input": ""}, codes.INVALID_VALUE, "text_input"),
        ({"text_input": "word " * 64}, codes.CONTEXT_LENGTH, "text_input"),
        ({"sampling_parameters": '{"stop_token_ids": [49152]}'}, codes.INVALID_VALUE, "stop_token_ids[0]"),
        (
            {"sampling_parameters": '{"ignore_eos": true}', "guided_decoding_guide_type": "json"},
            codes.INVALID_VALUE,
            "ignore_eos",
        ),
    ],
)
def test_what_the_model_cannot_do_is_refused(folder: Path, tensors: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        plan(folder, **tensors)
    assert (caught.value.wire.code, caught.value.wire.param) == (code, param)


def test_tensors_and_parameters_become_plain_values() -> None:
    request = Request(
        text_input="é",
        stream=[True],
        stop_words=["a", "b"],
        max_tokens=np.array([7], dtype=np.int32),
        seed=np.array([2**64 - 1], dtype=np.uint64),
        top_p=np.array([0.5], dtype=np.float32),
        parameters=json.dumps({"n": "1", "triton_something": 5}),
    )
    inputs = read_completion(request)
    assert inputs is not None
    assert inputs.tensors == {
        "text_input": "é",
        "stream": True,
        "stop_words": ("a", "b"),
        "max_tokens": 7,
        "seed": 2**64 - 1,
        "top_p": 0.5,
    }
    assert inputs.parameters == {"n": "1"}
    assert read_completion(Request(request="{}")) is None


@pytest.mark.parametrize(
    "inputs", [{"text_input": b"\xff"}, {"stop_words": [b"a", b"\xff"]}, {"stream": [True, False]}]
)
def test_tensors_that_cannot_be_read_are_named(inputs: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        read_completion(Request(**inputs))
    assert caught.value.wire.param in inputs
