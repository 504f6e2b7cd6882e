"""Everything the backend raises on purpose.

::

    HeptagramError
    ├── RequestError        the client must change the request      INVALID_ARG
    ├── OverloadedError     full or draining, try again later       UNAVAILABLE
    ├── ReleaseError        a version does not fit what is installed; its load is refused
    ├── LaunchError         the server cannot be started; the message says what to do
    ├── RolloutError        a version cannot be rolled out; what serves is untouched
    └── EngineError         our own fault; the request fails        INTERNAL

Foreign errors are mapped at the boundary where they appear, never let through.
"""

from __future__ import annotations

import logging

from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError

_log = logging.getLogger(__name__)


class HeptagramError(Exception):
    """Base of all; ``wire`` is what the client is told."""

    def __init__(self, message: str, *, code: str = codes.INTERNAL, param: str | None = None) -> None:
        super().__init__(message)
        self.wire = WireError(code=code, message=message, param=param)


class RequestError(HeptagramError):
    """A request that cannot be served as it is. The message names the field's problem and the fix."""

    def __init__(self, message: str, *, code: str = codes.INVALID_VALUE, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)


class OverloadedError(HeptagramError):
    """No room now; the same request can succeed later."""

    def __init__(self, message: str, *, code: str = codes.OVERLOADED) -> None:
        super().__init__(message, code=code)


class ReleaseError(HeptagramError):
    """``release.yaml`` is wrong or does not match what is installed."""


class LaunchError(HeptagramError):
    """The server cannot be started on this machine, or with these options. Never seen by a client."""


class RolloutError(HeptagramError):
    """A repository or a server does not allow what an operator asked for. Never seen by a client."""


class EngineError(HeptagramError):
    """A fault of our own while a request ran."""


def contain(error: Exception, doing: str) -> HeptagramError:
    """An error that may be told; what was not raised on purpose is logged, and told without its text."""
    if isinstance(error, HeptagramError):
        return error
    _log.error("%s", doing, exc_info=error)
    return EngineError(f"the engine failed at this request ({type(error).__name__})")
