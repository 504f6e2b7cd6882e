"""How tokens are chosen, and what is told of the choice: temperature, cuts, penalties, biases, log probabilities."""

from __future__ import annotations

import re
from typing import Final

from heptagram_backend.errors import RequestError
from heptagram_backend.generation import SamplingParams, TokenBias
from heptagram_backend.requests.fields import Fields, invalid, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.options import INT64_MAX
from heptagram_backend.sampling import MAX_BIAS, MAX_BIASES, MAX_TOP_K, MAX_TOP_LOGPROBS, RANGES, SEEDS
from heptagram_wire import errors as codes

_TOKEN: Final = re.compile(r"0|[1-9][0-9]{0,9}")


def read_sampling(fields: Fields) -> SamplingParams:
    """Every field that shapes the choice of tokens; absent ones leave the choice greedy.

    Raises:
        RequestError: a value out of its range.
    """
    numbers = {name: value for name in RANGES if (value := _number(fields, name)) is not None}
    top_k = fields.whole("top_k", -1, MAX_TOP_K) or 0
    return SamplingParams(
        **numbers,
        top_k=max(top_k, 0),
        logit_bias=_biases(fields),
        seed=fields.whole("seed", *SEEDS),
    )


def read_n(fields: Fields, limits: RequestLimits) -> int:
    """How many answers are given."""
    value = fields.whole("n", 1, INT64_MAX) or 1
    if value > limits.choices:
        advice = f"at most {limits.choices} answers a request are given here; send several requests"
        raise RequestError(advice, code=codes.TOO_MANY_CHOICES, param="n")
    return value


def read_chat_logprobs(fields: Fields) -> int | None:
    """OpenAI's ``logprobs`` and ``top_logprobs``: how many likeliest tokens are told, ``None`` without any."""
    wanted = fields.flag("logprobs", False)
    top = fields.whole("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if top and not wanted:
        raise invalid("top_logprobs", "needs `logprobs` true; send that as well, or leave both out")
    return (top or 0) if wanted else None


def read_completion_logprobs(fields: Fields) -> int | None:
    """vLLM's ``logprobs``, a number of its own; 0 tells only the chosen tokens'."""
    return fields.whole("logprobs", 0, MAX_TOP_LOGPROBS)


def _number(fields: Fields, name: str) -> float | None:
    bounds = RANGES[name]
    value = fields.number(name, bounds.low, bounds.high)
    if value is not None and value not in bounds:
        raise invalid(name, f"must be {bounds}; leave it out to switch it off")
    return value


def _biases(fields: Fields) -> tuple[TokenBias, ...]:
    """``logit_bias``: an object of token ids, which JSON writes as texts, and numbers."""
    name = "logit_bias"
    value = fields.get(name)
    if not isinstance(value, dict | None):
        raise wrong_type(name, "an object of token ids and numbers", value)
    if len(value or {}) > MAX_BIASES:
        raise invalid(name, f"more than {MAX_BIASES} tokens; keep those that matter most")
    return tuple(_bias(name, key, bias) for key, bias in (value or {}).items())


def _bias(name: str, key: str, bias: object) -> TokenBias:
    if not _TOKEN.fullmatch(key):
        raise invalid(name, "its keys must be token ids, written as plain decimal numbers")
    path = f"{name}.{key}"
    if isinstance(bias, bool) or not isinstance(bias, int | float):
        raise wrong_type(path, "a number", bias)
    if not -MAX_BIAS <= bias <= MAX_BIAS:
        raise invalid(path, f"must be from -{MAX_BIAS:g} to {MAX_BIAS:g}")
    return TokenBias(int(key), float(bias))
