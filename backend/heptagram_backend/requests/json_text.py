"""JSON, strictly: one object, no key twice, no NaN, no half characters, bounded in size and depth."""

from __future__ import annotations

import json
import math
from typing import Any

from heptagram_backend.errors import RequestError
from heptagram_backend.requests.limits import RequestLimits
from heptagram_wire import errors as codes


def load_object(raw: bytes | str, limits: RequestLimits) -> dict[str, Any]:
    """Read the text of a request.

    Raises:
        RequestError: ``invalid_json``, ``request_too_large`` or ``request_too_deep``.
    """
    data = load_value(raw, limits)
    if not isinstance(data, dict):
        raise _invalid("the request must be one JSON object")
    return data


def load_value(raw: bytes | str, limits: RequestLimits) -> Any:
    """Read any JSON value under the same rules; the errors speak of "the request"."""
    text = _decode(raw, limits)
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=lambda digits: _whole(digits, limits),
        )
    except json.JSONDecodeError as error:
        raise _invalid(f"the request is not JSON: fault at character {error.pos}; send one JSON object") from None
    except RecursionError:
        raise _too_deep(limits) from None
    _check(data, limits)
    return data


def _decode(raw: bytes | str, limits: RequestLimits) -> str:
    size = len(raw)
    if size <= limits.bytes and isinstance(raw, str):
        try:
            raw = raw.encode()
        except UnicodeEncodeError as error:
            raise _invalid(f"half a surrogate pair at character {error.start}; send whole characters") from None
        size = len(raw)
    if size > limits.bytes:
        raise RequestError(
            f"the request is larger than {limits.bytes} bytes; shorten the conversation", code=codes.REQUEST_TOO_LARGE
        )
    assert isinstance(raw, bytes)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(f"the request is not UTF-8: fault at byte {error.start}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise _invalid(f"the key {_shown(key)} stands twice in one object; keep one")
        data[key] = value
    return data


def _no_constant(name: str) -> None:
    raise _invalid(f"{name} is not JSON; send a number or null")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _invalid("a number is beyond what a double can hold")
    return value


def _whole(digits: str, limits: RequestLimits) -> int:
    if len(digits) > limits.number:
        raise _invalid(f"a number has more than {limits.number} digits")
    return int(digits)


def _check(data: Any, limits: RequestLimits) -> None:
    """Depth, number of values, and whole characters; without recursion."""
    level: list[Any] = [data]
    seen = 0
    for _ in range(limits.depth):
        seen += len(level)
        if seen > limits.values:
            raise RequestError(
                f"the request holds more than {limits.values} JSON values; send less at once",
                code=codes.REQUEST_TOO_LARGE,
            )
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _whole_characters(value)
            elif isinstance(value, list):
                deeper.extend(value)
            elif isinstance(value, dict):
                deeper.extend(value)  # the keys are text to check too
                deeper.extend(value.values())
        if not deeper:
            return
        level = deeper
    raise _too_deep(limits)


def _whole_characters(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid("half a surrogate pair in an escape such as \\ud83d; send whole characters") from None


def _shown(key: str) -> str:
    return json.dumps(key[:40])


def _invalid(message: str) -> RequestError:
    return RequestError(message, code=codes.INVALID_JSON)


def _too_deep(limits: RequestLimits) -> RequestError:
    return RequestError(
        f"the request is nested deeper than {limits.depth} levels; flatten it", code=codes.REQUEST_TOO_DEEP
    )
