"""A completion request: vllm_backend's tensors, and its sampling parameters as JSON or as request parameters.

A field may be given in several places if they agree; a contradiction is refused. Texts are read as the type that the
field has ("16", "true"), as vllm_backend does. What is not there is refused by name. ``temperature`` is 0 where it is
absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import DraftSource, SamplingParams
from heptagram_backend.requests.coercion import coerced, object_of
from heptagram_backend.requests.fields import Fields, invalid, unsupported
from heptagram_backend.requests.guides import read_guide
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.options import (
    INT64_MAX,
    read_ours,
    read_priority,
    read_stop,
    read_stop_token_ids,
)
from heptagram_backend.requests.sampling import read_completion_logprobs, read_n, read_sampling
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names

_DEFAULT_MAX_TOKENS: Final = 16  # vLLM's
# vLLM's fields whose other values are not supported here: the value that changes nothing, and what to do.
_NEUTRAL: Final[Mapping[str, tuple[Any, str]]] = {
    "best_of": (1, "not supported; `n` answers are all given"),
    "min_tokens": (0, "not supported; use `ignore_eos`, or leave it out"),
    "detokenize": (True, "the answer is always text; leave it out"),
    "skip_special_tokens": (True, "control tokens have no text here; leave it out"),
    "include_stop_str_in_output": (False, "a stop string is never sent; leave it out"),
    "prompt_logprobs": (None, "log probabilities of the prompt are not supported; leave it out"),
    "truncate_prompt_tokens": (None, "prompts are never cut; shorten the text, or leave it out"),
    "bad_words": ([], "not supported; leave it out"),
    "allowed_token_ids": (None, "not supported; use a guide, or leave it out"),
    "logits_processors": (None, "not supported; leave it out"),
    "extra_args": (None, "not supported; leave it out"),
    "lora_name": (None, "adapters are not supported; leave it out"),
}


@dataclass(frozen=True, slots=True)
class CompletionInputs:
    """What came in, as plain values: ``tensors`` by input name, ``parameters`` those of the Triton request."""

    tensors: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A valid one. ``echo``: the answer begins with the prompt."""

    text: str
    stream: bool
    echo: bool
    finish_reason: bool
    num_input_tokens: bool
    num_output_tokens: bool
    cumulative_logprob: bool
    max_tokens: int
    constraint: ConstraintSpec | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    logprobs: int | None = None
    priority: int = 0
    deadline_ms: int | None = None
    num_speculative_tokens: int | None = None
    drafts: DraftSource | None = None


def parse_completion(inputs: CompletionInputs, limits: RequestLimits) -> CompletionRequest:
    """Read one request.

    Raises:
        RequestError: anything that is wrong with it; ``param`` is the input's or the sampling parameter's name.
    """
    tensors = inputs.tensors
    text = tensors.get(names.TEXT_INPUT)
    if text is None:
        raise RequestError(
            "the input is missing; send the prompt as STRING [1]", code=codes.MISSING, param=names.TEXT_INPUT
        )
    if len(text.encode()) > limits.bytes:
        raise RequestError(
            f"longer than {limits.bytes} bytes; shorten it", code=codes.REQUEST_TOO_LARGE, param=names.TEXT_INPUT
        )
    stream = tensors.get(names.STREAM, False)
    exclude = tensors.get(names.EXCLUDE_INPUT, stream)
    if stream and not exclude:
        raise invalid(names.EXCLUDE_INPUT, "a stream cannot repeat the prompt; send true, or leave it out")
    fields = Fields(_merged(inputs, limits))
    stop = (*read_stop(fields, limits), *_stop_words(tensors, limits))
    request = CompletionRequest(
        text=text,
        stream=stream,
        echo=not exclude,
        finish_reason=tensors.get(names.RETURN_FINISH_REASON, False),
        num_input_tokens=tensors.get(names.RETURN_NUM_INPUT_TOKENS, False),
        num_output_tokens=tensors.get(names.RETURN_NUM_OUTPUT_TOKENS, False),
        cumulative_logprob=tensors.get(names.RETURN_CUMULATIVE_LOGPROB, False),
        max_tokens=fields.whole(names.MAX_TOKENS, 1, INT64_MAX) or _DEFAULT_MAX_TOKENS,
        constraint=read_guide(fields, tensors.get(names.GUIDE_TYPE), tensors.get(names.GUIDE), limits),
        stop=tuple(dict.fromkeys(stop)),
        stop_token_ids=read_stop_token_ids(fields, limits),
        ignore_eos=fields.flag("ignore_eos", False),
        sampling=read_sampling(fields),
        n=read_n(fields, limits),
        logprobs=read_completion_logprobs(fields),
        priority=read_priority(fields),
        **_ours(fields),
    )
    _check_rest(fields)
    fields.refuse_unknown()
    return request


def _merged(inputs: CompletionInputs, limits: RequestLimits) -> dict[str, Any]:
    """All sampling parameters, each of its type."""
    merged: dict[str, Any] = {}
    written = inputs.tensors.get(names.SAMPLING_PARAMETERS)
    given = {name: value for name in names.COMPLETION_NUMBERS if (value := inputs.tensors.get(name)) is not None}
    for source in (given, object_of(written, names.SAMPLING_PARAMETERS, limits) if written else {}, inputs.parameters):
        for name, value in source.items():
            value = coerced(name, value, limits)
            if name in merged and not _agree(merged[name], value):
                raise invalid(name, "is given twice, with different values; give it once")
            merged.setdefault(name, value)
    return merged


def _agree(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-6)  # one of them may have been an FP32
    return type(first) is type(second) and bool(first == second)


def _stop_words(tensors: Mapping[str, Any], limits: RequestLimits) -> tuple[str, ...]:
    """TensorRT-LLM's input. Its clients send an empty text for none."""
    words = [word for word in tensors.get(names.STOP_WORDS, ()) if word]
    try:
        return read_stop(Fields({"stop": words}), limits)
    except RequestError as error:
        raise RequestError(str(error), code=error.wire.code, param=names.STOP_WORDS) from None


def _ours(fields: Fields) -> dict[str, Any]:
    options = read_ours(fields)
    if options.pop("tool_markup", "guarded") != "guarded":
        raise unsupported("heptagram.tool_markup", "a completion has no tools; leave it out")
    if options.pop("unenforced", "refuse") != "refuse":
        raise unsupported("heptagram.unenforced", "the text of a completion is not validated; leave it out")
    return options


def _check_rest(fields: Fields) -> None:
    fields.flag("spaces_between_special_tokens", True)  # control tokens have no text here
    for name, (neutral, advice) in _NEUTRAL.items():
        if fields.get(name) not in (None, neutral):
            raise unsupported(name, advice)
