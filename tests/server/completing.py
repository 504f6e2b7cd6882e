"""Completions as a plain Triton client sends them: tensors in, the tensors of each response out."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from heptagram_wire import tensors as names
from tests.server.served import text_input

_DTYPES = {names.MAX_TOKENS: "INT32", names.TOP_K: "INT32", names.SEED: "UINT64"}
_DTYPES |= dict.fromkeys((names.TEMPERATURE, names.TOP_P), "FP32") | dict.fromkeys(names.COMPLETION_FLAGS, "BOOL")
_NUMPY = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}


class RefusedError(Exception):
    """Triton's error text."""


def tensors(**values: Any) -> list[Any]:
    """Inputs by name; texts and lists of texts are STRING, the others have the type of their name."""
    return [_tensor(name, value) for name, value in values.items()]


def ask(url: str, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
    """One request on a gRPC stream of its own: the outputs of each response, one-element ones unwrapped.

    Raises:
        RefusedError: the stream ended with an error.
    """
    arrived: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    responses: list[dict[str, Any]] = []
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(names.COMPLETIONS, list(inputs), enable_empty_final_response=True, **options)
        while True:
            result, error = arrived.get(timeout=60)
            if error is not None:
                raise RefusedError(error.message())
            response = result.get_response()
            responses.append({each.name: _plain(result.as_numpy(each.name)) for each in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return responses


def joined(responses: Sequence[Mapping[str, Any]]) -> str:
    return "".join(response[names.TEXT_OUTPUT] for response in responses)


def _tensor(name: str, value: Any) -> Any:
    if isinstance(value, str | list):
        return text_input(name, *([value] if isinstance(value, str) else value))
    tensor = triton.InferInput(name, [1], _DTYPES[name])
    tensor.set_data_from_numpy(np.array([value], dtype=_NUMPY[_DTYPES[name]]))
    return tensor


def _plain(array: Any) -> Any:
    values = [value.decode() if isinstance(value, bytes) else value for value in array.tolist()]
    return values[0] if len(values) == 1 else values
