"""The body of a request: read within its bounds of size and time, and parsed strictly.

One object, no key twice, no NaN, no half characters, at most so deep. Whatever is wrong is an ApiError with words of
our own, in bounded time.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from starlette.types import Receive, Scope

from heptagram_gateway.errors import ApiError, ClientGoneError
from heptagram_wire.errors import INVALID_JSON, TOO_LARGE

_DEPTH: Final = 96
_DIGITS: Final = 400
_IN_A_THREAD: Final = 64 << 10  # bytes from which parsing would hold up other requests
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_CLOSE: Final = {"connection": "close"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """``size`` in bytes; ``seconds`` for the whole body to arrive."""

    size: int
    seconds: float


async def read_object(scope: Scope, receive: Receive, limits: BodyLimits) -> dict[str, Any]:
    """The JSON object that is the body.

    Raises:
        ApiError: 400 no such object, 408 it stalls, 413 it is too large.
        ClientGoneError: the client left before its end.
    """
    raw = await read_body(scope, receive, limits)
    return await asyncio.to_thread(parse_object, raw) if len(raw) > _IN_A_THREAD else parse_object(raw)


async def read_body(scope: Scope, receive: Receive, limits: BodyLimits) -> bytes:
    """The whole body; raises as :func:`read_object` does."""
    if _declared(scope) > 4 * limits.size:  # too much even to be thrown away
        raise _too_large(limits)
    body = bytearray()
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                piece = message.get("body", b"")
                size += len(piece)
                if size <= limits.size:
                    body += piece
                elif size > 4 * limits.size:
                    raise _too_large(limits)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {limits.seconds:g} s", "timeout", headers=_CLOSE) from None
    # Told only now: a client that still sends would lose the answer when the connection is closed under it.
    if size > limits.size:
        raise _too_large(limits)
    return bytes(body)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse one JSON object; raises ApiError."""
    try:
        data = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise _invalid(f"the body is not UTF-8: fault at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"the body is not JSON: fault at character {error.pos}; send one JSON object") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(data, dict):
        raise _invalid("the body must be one JSON object")
    _check_depth(data)
    if _SURROGATE.search(raw):
        _check_characters(data)
    return data


def _declared(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() else 0


def _check_depth(data: Any) -> None:
    level: list[Any] = [data]
    for _ in range(_DEPTH):
        level = [value for outer in level for value in _inner(outer) if isinstance(value, dict | list)]
        if not level:
            return
    raise _too_deep()


def _inner(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value


def _check_characters(data: Any) -> None:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _invalid("half a surrogate pair in an escape such as \\ud83d; send whole characters") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise _invalid("a key stands twice in one object; keep one")
    return data


def _no_constant(name: str) -> NoReturn:
    raise _invalid(f"{name} is not JSON; send a number or null")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _invalid("a number is beyond what a double can hold")
    return value


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise _invalid(f"a number has more than {_DIGITS} digits")
    return int(digits)


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, INVALID_JSON)


def _too_deep() -> ApiError:
    return _invalid(f"the body is nested deeper than {_DEPTH} levels")


def _too_large(limits: BodyLimits) -> ApiError:
    return ApiError(413, f"the body is larger than {limits.size} bytes", TOO_LARGE, headers=_CLOSE)
