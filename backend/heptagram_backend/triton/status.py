"""Our errors as Triton's: a status code and the text ``[code] param: message``."""

from __future__ import annotations

import logging
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import EngineError, HeptagramError, RequestError
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from heptagram_wire.events import Failure

_log = logging.getLogger(__name__)
_UNAVAILABLE: Final = frozenset({codes.OVERLOADED, codes.DRAINING})
_OWN_FAULT: Final = frozenset({codes.INTERNAL, codes.INVALID_OUTPUT, codes.DEADLINE, codes.CANCELLED})


def triton_error(error: HeptagramError) -> Any:
    """``INVALID_ARG`` for the client's fault, ``UNAVAILABLE`` when full or draining, else ``INTERNAL``."""
    if isinstance(error, RequestError):
        return pb_utils.TritonError(error.wire.format(), pb_utils.TritonError.INVALID_ARG)
    return pb_utils.TritonError(error.wire.format(), _status(error.wire.code, client=pb_utils.TritonError.INTERNAL))


def failure_error(failure: Failure) -> Any:
    """The Triton error that stands for a failure where only one response is sent."""
    wire = WireError(failure.code, failure.message, failure.param)
    return pb_utils.TritonError(wire.format(), _status(wire.code, client=pb_utils.TritonError.INVALID_ARG))


def contained(error: Exception, *, where: str) -> HeptagramError:
    """Any exception as one of ours; a foreign one is logged whole and told to the client by its type only."""
    if isinstance(error, HeptagramError):
        return error
    _log.error("%s", where, exc_info=error)
    return EngineError(f"{where} failed ({type(error).__name__}); the server's log has the details")


def _status(code: str, *, client: Any) -> Any:
    if code in _UNAVAILABLE:
        return pb_utils.TritonError.UNAVAILABLE
    return pb_utils.TritonError.INTERNAL if code in _OWN_FAULT else client
