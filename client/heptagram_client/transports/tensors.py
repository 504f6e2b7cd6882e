"""Between Triton's tensors and text; shared by the two gRPC transports."""

from __future__ import annotations

from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, InferResult
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import ConnectError, HeptagramClientError, ServerError, error_from_text
from heptagram_client.transports.base import Response
from heptagram_wire import tensors

_FINAL = "triton_final_response"
_UNREACHABLE = "StatusCode.UNAVAILABLE"  # as tritonclient writes it


def request_input(body: str) -> Any:
    """Input ``request``, STRING [1]. Object dtype: ``np.bytes_`` would cut trailing NULs."""
    tensor = InferInput(tensors.REQUEST, [1], "BYTES")
    return tensor.set_data_from_numpy(np.array([body.encode()], dtype=np.object_))


def read_result(result: InferResult) -> Response:
    """Output ``events``, STRING [-1], absent in a response that only carries the FINAL flag."""
    parameters = result.get_response().parameters
    final = _FINAL in parameters and parameters[_FINAL].bool_param
    events = result.as_numpy(tensors.EVENTS)
    return Response(() if events is None else tuple(events.reshape(-1).tolist()), final)


def map_exception(error: InferenceServerException) -> HeptagramClientError:
    """Our exception for one of tritonclient's. In-band errors have a text only; gRPC's own have a status too."""
    return map_error(error.message() or "no message", error.status())


def map_error(text: str, status: str | None) -> HeptagramClientError:
    mapped = error_from_text(text, status)
    if isinstance(mapped, ServerError) and status == _UNREACHABLE:
        return ConnectError(f"no connection to the server: {text}")
    return mapped
