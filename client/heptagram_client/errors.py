"""Everything the client raises on purpose.

::

    HeptagramClientError
    ├── ConnectError            no connection, or it was lost on the way
    ├── IdleTimeoutError        the connection stands, but nothing arrived for too long
    ├── ProtocolError           what arrived is not the contract (versions that do not fit, a broken server)
    ├── ServerError             Triton's own error: unknown model, wrong tensor, crashed step
    └── ReportedError           an error that Heptagram reported; has ``code``, ``param``, ``message``
        ├── RequestRefusedError     change the request
        ├── OverloadedError         full or draining; the same request can succeed later
        └── GenerationError         the request was right, the run failed

Errors of gRPC, HTTP and tritonclient are mapped in the transports, never let through.
"""

from __future__ import annotations

from heptagram_wire.errors import BUSY_CODES, FAILURE_CODES, WireError, parse_error


class HeptagramClientError(Exception):
    """Base of all."""


class ConnectError(HeptagramClientError):
    """The server cannot be reached, or the connection was lost."""


class IdleTimeoutError(HeptagramClientError):
    """Nothing arrived for longer than the idle timeout, not even a heartbeat: the server's model has died or hangs."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing arrived for {seconds:g} s, not even a heartbeat; is the server still alive?")
        self.seconds = seconds


class ProtocolError(HeptagramClientError):
    """A response that the contract does not allow."""


class ServerError(HeptagramClientError):
    """Triton's own error; ``status`` is its gRPC or HTTP status where the transport carries one."""

    def __init__(self, message: str, status: str | None = None) -> None:
        super().__init__(f"{message} ({status})" if status else message)
        self.message = message
        self.status = status


class ReportedError(HeptagramClientError):
    """An error that Heptagram itself reported. ``param`` is an OpenAI-style path of the field, or ``None``."""

    def __init__(self, error: WireError) -> None:
        super().__init__(f"{error.param}: {error.message}" if error.param else error.message)
        self.code = error.code
        self.param = error.param
        self.message = error.message


class RequestRefusedError(ReportedError):
    """The request cannot be served as it is; the message names the fix."""


class OverloadedError(ReportedError):
    """No room now; try again later."""


class GenerationError(ReportedError):
    """The run failed or was ended from outside."""


def reported_error(error: WireError) -> ReportedError:
    """The exception for an error that came before ``start``, or for one of a request without a stream."""
    if error.code in BUSY_CODES:
        return OverloadedError(error)
    return (GenerationError if error.code in FAILURE_CODES else RequestRefusedError)(error)


def error_from_text(text: str, status: str | None = None) -> HeptagramClientError:
    """The exception for an error text that came through Triton."""
    wire = parse_error(text)
    return ServerError(text, status) if wire is None else reported_error(wire)
