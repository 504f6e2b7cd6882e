"""Anthropic's error object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_gateway.errors import ApiError
from heptagram_telemetry.logs import request_id
from heptagram_wire.errors import BUSY_CODES

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The body of an error, or an ``error`` event of a stream. The field at fault begins the message."""
    message = error.message if error.param is None else f"{error.param}: {error.message}"
    told = {"type": _type(error), "message": message, "details": {"error_code": error.code}}
    return {"type": "error", "error": told, "request_id": request_id.get()}


def _type(error: ApiError) -> str:
    if error.status == 503 and error.code in BUSY_CODES:
        return "overloaded_error"
    return _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
