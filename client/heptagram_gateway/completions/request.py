"""From the body of a completion to the inputs of the ensemble. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.chat.request import read_usage
from heptagram_gateway.chat.table import HARMLESS, SAMPLING_EXTRAS
from heptagram_gateway.errors import invalid, unsupported
from heptagram_gateway.fields import Sorted, Table, flag, mapping, only, sort_fields
from heptagram_wire import tensors as names
from heptagram_wire.errors import MISSING

_MOST_PROMPTS: Final = 32
_HERE: Final = {"prompt": None}

COMPLETIONS: Final = Table(
    {
        **_HERE,
        **dict.fromkeys(("max_tokens", "stop", "n", "seed", "temperature", "top_p", "logprobs")),
        **dict.fromkeys(("frequency_penalty", "presence_penalty", "logit_bias")),
        **dict.fromkeys(("top_k", "min_p", "repetition_penalty", "ignore_eos", "stop_token_ids", "priority")),
        "heptagram": None,
    },
    {
        **HARMLESS,
        "stream_options": mapping,
        **SAMPLING_EXTRAS,
        "echo": flag,
        "suffix": only("", advice="filling in is not supported; leave it out"),
        "response_format": only({"type": "text"}, advice="write it to /v1/chat/completions"),
        "return_token_ids": only(False),
        "add_special_tokens": only(True, False),
    },
)


@dataclass(frozen=True, slots=True)
class CompletionAsked:
    """``inputs`` of each prompt, in order; ``logprobs`` are told, 0 of them too, once the backend has answered."""

    fields: Sorted
    model: str | None
    stream: bool
    usage: bool
    echo: bool
    logprobs: bool
    prompts: tuple[str, ...]

    @property
    def inputs(self) -> tuple[dict[str, Any], ...]:
        """The input tensors for each prompt. Numbers travel as JSON: Triton wraps integers silently."""
        sampling = {name: value for name, value in self.fields.passed.items() if name not in _HERE}
        shared = {
            names.SAMPLING_PARAMETERS: json.dumps(sampling, ensure_ascii=False),
            names.STREAM: True,
            names.RETURN_FINISH_REASON: True,
            names.RETURN_NUM_INPUT_TOKENS: True,
            names.RETURN_NUM_OUTPUT_TOKENS: True,
        }
        return tuple({names.TEXT_INPUT: prompt, **shared} for prompt in self.prompts)


def read_completion(body: Mapping[str, Any]) -> CompletionAsked:
    """Read the body.

    Raises:
        ApiError: a field has the wrong type, or asks for what is not there. The backend checks what is passed on.
    """
    fields = sort_fields(body, COMPLETIONS)
    stream, echo = bool(body.get("stream")), bool(body.get("echo"))
    logprobs = body.get("logprobs") is not None
    if echo and logprobs:
        raise unsupported("echo", "the prompt has no log probabilities here; leave it out, or leave out `logprobs`")
    return CompletionAsked(
        fields=fields,
        model=body.get("model"),
        stream=stream,
        usage=read_usage(body, stream),
        echo=echo,
        logprobs=logprobs,
        prompts=_prompts(body.get("prompt")),
    )


def _prompts(value: Any) -> tuple[str, ...]:
    if value is None:
        raise invalid("prompt", "this field is required", MISSING)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise invalid("prompt", "must be a string or a list of strings", "invalid_type")
    if len(value) > _MOST_PROMPTS:
        raise invalid("prompt", f"more than {_MOST_PROMPTS} prompts; send several requests")
    for index, entry in enumerate(value):
        if isinstance(entry, int | list):
            raise unsupported("prompt", "prompts of token ids are not supported; send text")
        if not isinstance(entry, str):
            raise invalid(f"prompt[{index}]", "must be a string", "invalid_type")
    return tuple(value)
