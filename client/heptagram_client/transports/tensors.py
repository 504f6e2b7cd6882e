"""Between Triton's tensors and text; shared by the two gRPC transports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, InferResult
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import ConnectError, HeptagramClientError, ProtocolError, ServerError, error_from_text
from heptagram_client.transports.base import Response, TextPiece, TextResponse
from heptagram_wire import tensors
from heptagram_wire.codec import decode_logprobs
from heptagram_wire.events import TokenLogprob

_FINAL = "triton_final_response"
_UNREACHABLE = "StatusCode.UNAVAILABLE"  # as tritonclient writes it


def request_input(body: str) -> Any:
    """Input ``request``, STRING [1]. Object dtype: ``np.bytes_`` would cut trailing NULs."""
    tensor = InferInput(tensors.REQUEST, [1], "BYTES")
    return tensor.set_data_from_numpy(np.array([body.encode()], dtype=np.object_))


def completion_inputs(inputs: Mapping[str, Any]) -> list[Any]:
    """The input tensors of a completion: texts are STRING [1], flags BOOL [1].

    Raises:
        ValueError: a value is neither text nor a flag; numbers travel exactly in ``sampling_parameters``.
    """
    return [_input(name, value) for name, value in inputs.items()]


def _input(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return InferInput(name, [1], "BOOL").set_data_from_numpy(np.array([value]))
    if isinstance(value, str):
        return InferInput(name, [1], "BYTES").set_data_from_numpy(np.array([value.encode()], dtype=np.object_))
    raise ValueError(f"input {name} is neither text nor a flag")


def read_completion(result: InferResult) -> TextResponse:
    """The outputs of one response of the ensemble ``completions``.

    Raises:
        ProtocolError: its log probabilities cannot be read, or its outputs tell of different numbers of answers.
    """
    texts = [text.decode() for text in _values(result, tensors.TEXT_OUTPUT)]
    reasons = [None if reason == b"None" else reason.decode() for reason in _values(result, tensors.FINISH_REASON)]
    counts = [int(count) for count in _values(result, tensors.NUM_OUTPUT_TOKENS)]
    logprobs = [_logprobs(text) for text in _values(result, tensors.LOGPROBS)]
    absent = len(texts)
    rows = zip(texts, reasons or [None] * absent, counts or [0] * absent, logprobs or [()] * absent, strict=True)
    try:
        pieces = tuple(TextPiece(*row) for row in rows)
    except ValueError as error:
        raise ProtocolError("the server sent outputs of different numbers of answers") from error
    prompt_tokens = [int(count) for count in _values(result, tensors.NUM_INPUT_TOKENS)]
    return TextResponse(pieces, prompt_tokens[0] if prompt_tokens else None, _is_final(result))


def _logprobs(text: bytes) -> tuple[TokenLogprob, ...]:
    try:
        return decode_logprobs(text.decode())
    except ValueError as error:
        raise ProtocolError(f"the server sent broken log probabilities: {error}") from error


def _values(result: InferResult, name: str) -> list[Any]:
    """An output that may be absent, flat."""
    array = result.as_numpy(name)
    return [] if array is None else list(array.reshape(-1))


def _is_final(result: InferResult) -> bool:
    parameters = result.get_response().parameters
    return _FINAL in parameters and bool(parameters[_FINAL].bool_param)


def read_result(result: InferResult) -> Response:
    """Output ``events``, STRING [-1], absent in a response that only carries the FINAL flag."""
    events = result.as_numpy(tensors.EVENTS)
    return Response(() if events is None else tuple(events.reshape(-1).tolist()), _is_final(result))


def map_exception(error: InferenceServerException) -> HeptagramClientError:
    """Our exception for one of tritonclient's. In-band errors have a text only; gRPC's own have a status too."""
    return map_error(error.message() or "no message", error.status())


def map_error(text: str, status: str | None) -> HeptagramClientError:
    mapped = error_from_text(text, status)
    if isinstance(mapped, ServerError) and status == _UNREACHABLE:
        return ConnectError(f"no connection to the server: {text}")
    return mapped
