"""Sampling parameters come as texts too: each is read as the type that its field has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_backend.errors import RequestError
from heptagram_backend.requests.fields import wrong_type
from heptagram_backend.requests.json_text import load_value
from heptagram_backend.requests.limits import RequestLimits

_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")
_NUMBER: Final = re.compile(r"\s*[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?\s*")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}

_WHOLES = """
    max_tokens min_tokens n best_of top_k seed logprobs prompt_logprobs truncate_prompt_tokens priority
"""
_NUMBERS = "temperature top_p min_p presence_penalty frequency_penalty repetition_penalty"
_SWITCHES = """
    ignore_eos detokenize skip_special_tokens spaces_between_special_tokens include_stop_str_in_output
"""
_TREES = "stop_token_ids bad_words allowed_token_ids logit_bias structured_outputs guided_decoding heptagram extra_args"


def coerced(name: str, value: Any, limits: RequestLimits) -> Any:
    """``value`` as the field ``name`` has it; what is not a text, or of an unknown field, stays as it is.

    Raises:
        RequestError: the text is not of the field's type.
    """
    read = _READERS.get(name)
    if isinstance(value, float) and value.is_integer() and read is _whole:
        return int(value)
    if type(value) is int and value in (0, 1) and read is _flag:
        return bool(value)
    if not isinstance(value, str) or read is None:
        return value
    return read(name, value, limits)


def object_of(text: str, name: str, limits: RequestLimits) -> Mapping[str, Any]:
    """The JSON object that the input ``name`` holds.

    Raises:
        RequestError: ``invalid_json``, ``invalid_type``, ``request_too_large`` or ``request_too_deep``.
    """
    value = _tree(name, text, limits)
    if not isinstance(value, dict):
        raise wrong_type(name, "one JSON object", value)
    return value


def _whole(name: str, text: str, _limits: RequestLimits) -> int:
    if not _WHOLE.fullmatch(text):
        raise wrong_type(name, "a whole number", text)
    return int(text)


def _number(name: str, text: str, _limits: RequestLimits) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        raise wrong_type(name, "a number", text)
    return value


def _flag(name: str, text: str, _limits: RequestLimits) -> bool:
    value = _FLAGS.get(text.strip().lower())
    if value is None:
        raise wrong_type(name, "true or false", text)
    return value


def _tree(name: str, text: str, limits: RequestLimits) -> Any:
    try:
        return load_value(text, limits)
    except RequestError as error:
        message = str(error).replace("the request", "the text")
        raise RequestError(message, code=error.wire.code, param=name) from None


_READERS: Final[Mapping[str, Callable[[str, str, RequestLimits], Any]]] = {
    name: read
    for words, read in ((_WHOLES, _whole), (_NUMBERS, _number), (_SWITCHES, _flag), (_TREES, _tree))
    for name in words.split()
}
