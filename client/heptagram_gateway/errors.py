"""Everything the front answers a failed request with, and how foreign errors become it.

::

    ApiError                    status, OpenAI's error object, headers
    ClientGoneError             nobody is left to answer

An :class:`ApiError` before the headers is its status with ``{"error": {...}}``; after them the same object is an event
of the stream. The text of another library never gets in: it is logged beside the request id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from heptagram_client.errors import (
    ConnectError,
    GenerationError,
    HeptagramClientError,
    IdleTimeoutError,
    OverloadedError,
    ProtocolError,
    RequestRefusedError,
    ServerError,
    reported_error,
)
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from heptagram_wire.events import Failure

_LOG = logging.getLogger(__name__)

INVALID_REQUEST: Final = "invalid_request_error"
RATE_LIMIT: Final = "rate_limit_error"
SERVER: Final = "server_error"
NOT_READY: Final = "model_not_ready"


class ApiError(Exception):
    """``param`` is an OpenAI-style path of the field at fault, ``code`` a stable word for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    @property
    def type(self) -> str:
        if self.status == 429:
            return RATE_LIMIT
        return INVALID_REQUEST if self.status < 500 else SERVER


class ClientGoneError(Exception):
    """The client has closed its connection."""


def openai_error(error: ApiError) -> dict[str, Any]:
    """The OpenAI error object, as a body or as an event of a stream."""
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def invalid(param: str | None, message: str, code: str = codes.INVALID_VALUE) -> ApiError:
    return ApiError(400, message, code, param)


def unsupported(param: str, message: str) -> ApiError:
    return ApiError(400, message, codes.UNSUPPORTED, param)


def draining() -> ApiError:
    return ApiError(503, "the server is shutting down; try another one", codes.DRAINING, headers={"retry-after": "5"})


def unexpected(error: Exception) -> ApiError:
    """A fault of our own."""
    _LOG.error("a fault in the gateway", exc_info=error)
    return ApiError(500, "a fault in the gateway; the log has it under the request id", codes.INTERNAL)


# Statuses of the codes that Heptagram reports; those of refused requests that are not here are 400.
_STATUS: Final[Mapping[str, int]] = {
    codes.MODEL_NOT_FOUND: 404,
    codes.OVERLOADED: 503,
    codes.DRAINING: 503,
    codes.DEADLINE: 504,
    codes.CANCELLED: 503,
    codes.INTERNAL: 500,
    codes.INVALID_OUTPUT: 500,
}
_RETRY_SOON: Final = {"retry-after": "1"}


def _refused(error: RequestRefusedError) -> ApiError:
    whole_body = error.code == codes.TOO_LARGE and error.param is None
    status = 413 if whole_body else _STATUS.get(error.code, 400)
    return ApiError(status, error.message, error.code, error.param)


def _busy(error: OverloadedError) -> ApiError:
    return ApiError(_STATUS.get(error.code, 503), error.message, error.code, error.param, _RETRY_SOON)


def _failed(error: GenerationError) -> ApiError:
    return ApiError(_STATUS.get(error.code, 500), error.message, error.code, error.param)


def _unreachable(error: ConnectError) -> ApiError:
    _LOG.warning("the model server cannot be reached: %s", error)
    return ApiError(503, "the model server cannot be reached; try again soon", "unavailable", headers=_RETRY_SOON)


def _silent(error: IdleTimeoutError) -> ApiError:
    _LOG.warning("the model server is silent: %s", error)
    return ApiError(504, f"the model server has been silent for {error.seconds:g} s", "timeout")


def _broken(error: HeptagramClientError) -> ApiError:
    _LOG.error("the model server answers wrongly: %s", error)
    return ApiError(502, "the model server failed; the log has it under the request id", "bad_gateway")


def _tritons_own(error: ServerError) -> ApiError:
    """Triton says this of a model that is being loaded again after its process has died."""
    if "is not ready" in error.message or "is not found" in error.message or "unknown model" in error.message:
        _LOG.warning("the model is not ready: %s", error)
        return ApiError(503, "the model is not ready; try again soon", NOT_READY, headers=_RETRY_SOON)
    return _broken(error)


_MAPPERS: Final[Mapping[type[HeptagramClientError], Callable[[Any], ApiError]]] = {
    RequestRefusedError: _refused,
    OverloadedError: _busy,
    GenerationError: _failed,
    ConnectError: _unreachable,
    IdleTimeoutError: _silent,
    ProtocolError: _broken,
    ServerError: _tritons_own,
}


def from_client(error: HeptagramClientError) -> ApiError:
    """The answer for an error of :mod:`heptagram_client`."""
    return _MAPPERS.get(type(error), _broken)(error)


def from_failure(event: Failure) -> ApiError:
    """The answer for a ``failure`` event."""
    return from_client(reported_error(WireError(event.code, event.message, event.param)))
