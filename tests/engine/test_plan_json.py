"""A plan that anybody may send to ``generate``: read back exactly, or refused by the name of its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import (
    CompletionOutput,
    GenerationRequest,
    OutputSpec,
    SamplingParams,
    TokenBias,
    Trigger,
)

SPEC = ConstraintSpec("ebnf", 'root ::= "ä"')
WHOLE = GenerationRequest(
    (1, 2),
    OutputSpec("chatml_json", parse_calls=True, schemas={"f": {"type": "object"}}, answer={"type": "array"}),
    "m",
    max_tokens=5,
    constraint=SPEC,
    trigger=Trigger("<t>", SPEC, once=True),
    stop=("a", "b"),
    stop_token_ids=(3,),
    sampling=SamplingParams(
        temperature=0.5, top_k=3, logit_bias=(TokenBias(5, -1.5), TokenBias(6, 2.0)), seed=2**64 - 1
    ),
    logprobs=3,
    deadline_ms=9,
    completion=CompletionOutput("text", finish_reason=True),
)


def test_a_plan_is_read_back_as_it_was() -> None:
    assert GenerationRequest.from_json(WHOLE.to_json(), (1, 2)) == WHOLE


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"deadline_ms": "5"}, "`deadline_ms` must be a whole number"),
        ({"max_tokens": 3.5}, "`max_tokens` must be a whole number"),
        ({"max_tokens": True}, "`max_tokens` must be a whole number"),
        ({"max_tokens": float("nan")}, "is not JSON"),
        ({"model": "\ud800"}, "is not JSON"),
        ({"model": None}, "`model` must be a string"),
        ({"stream": 1}, "`stream` must be true or false"),
        ({"stop": "ab"}, "`stop` must be a list"),
        ({"stop": ["a", 1]}, "`stop[1]` must be a string"),
        ({"drafts": [1]}, "`drafts` must be a string"),
        ({"constraint": {"kind": "no", "source": ""}}, "`constraint.kind` must be one of"),
        ({"constraint": {"kind": "ebnf"}}, "`constraint.source` is missing"),
        ({"trigger": {"text": "t", "constraint": None}}, "`trigger.constraint` must be"),
        ({"completion": {"prompt": 5}}, "`completion.prompt` must be a string"),
        ({"output": {"format": "chatml_json", "schemas": [1]}}, "`output.schemas` must be an object"),
        ({"output": {"format": "chatml_json", "answer": True}}, "`output.answer` must be an object"),
        ({"output": None}, "`output` must be an object"),
        ({"sampling": {"temperature": "1"}}, "`sampling.temperature` must be a number"),
        ({"sampling": {"top_p": True}}, "`sampling.top_p` must be a number"),
        ({"sampling": {"top_p": 10**400}}, "`sampling.top_p` must be a number"),
        ({"sampling": {"top_k": 1.0}}, "`sampling.top_k` must be a whole number"),
        ({"sampling": {"logit_bias": [{"token": 1}]}}, "`sampling.logit_bias[0].bias` is missing"),
        ({"prompt_ids": [1]}, 'there is no field "prompt_ids"'),
        ({"zzz": 1}, 'there is no field "zzz"'),
    ],
)
def test_what_is_not_of_its_type_is_refused_by_name(change: dict[str, Any], told: str) -> None:
    plan = json.dumps(json.loads(WHOLE.to_json()) | change)
    with pytest.raises(RequestError, match="send requests to `chat`") as caught:
        GenerationRequest.from_json(plan, (1, 2))
    assert told in str(caught.value)
    assert caught.value.wire.param == "plan"


@pytest.mark.parametrize("plan", ["", "[]", "null", '"x"', "[" * 100_000, "{}", '{"output": {"format": "f"}}'])
def test_what_is_no_plan_at_all_is_refused(plan: str) -> None:
    with pytest.raises(RequestError, match="not a plan"):
        GenerationRequest.from_json(plan, (1,))
