"""What the glue uses of ``triton_python_backend_utils``, which exists only inside Triton's stub process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonModelException(Exception):  # noqa: N818 - the real name
    pass


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, text: str, code: int = INTERNAL) -> None:
        self.text = text
        self.code = code


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        if isinstance(self._array, Exception):
            raise self._array
        return self._array


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error

    def texts(self, name: str) -> list[str]:
        return [value.decode() for value in self.outputs[name]]


class Sender:
    """Keeps what is sent; asking or sending after FINAL is what crashes the real server."""

    def __init__(self) -> None:
        self.sent: list[tuple[InferenceResponse, bool]] = []
        self.cancelled = False
        self.raises: Exception | None = None

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        assert not (self.sent and self.sent[-1][1]), "a send after FINAL"
        if self.raises is not None:
            raise self.raises
        self.sent.append((response, flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL))

    def is_cancelled(self) -> bool:
        assert not (self.sent and self.sent[-1][1]), "is_cancelled after FINAL"
        return self.cancelled


class Request:
    def __init__(self, *, cancelled: bool = False, request_id: str = "", parameters: str = "{}", **inputs: Any) -> None:
        self._inputs = {name: _tensor(name, value) for name, value in inputs.items()}
        self._request_id = request_id
        self._parameters = parameters
        self.sender = Sender()
        self._cancelled = cancelled
        self.asked = 0

    def inputs(self) -> list[Tensor]:
        return list(self._inputs.values())

    def get_response_sender(self) -> Sender:
        return self.sender

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self._cancelled

    def request_id(self) -> str:
        return self._request_id

    def parameters(self) -> str:
        return self._parameters


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


class Metric:
    def __init__(self) -> None:
        self.value = 0.0
        self.updates = 0

    def set(self, value: float) -> None:
        self.value = value
        self.updates += 1

    def increment(self, value: float) -> None:
        assert value > 0
        self.set(self.value + value)


class MetricFamily:
    GAUGE, COUNTER = "gauge", "counter"
    made: dict[str, Metric] = {}  # noqa: RUF012 - the server's registry, by name and the label that is not the model's
    labels: dict[str, dict[str, str]] = {}  # noqa: RUF012

    def __init__(self, *, name: str, description: str, kind: str) -> None:
        self.name = name

    def Metric(self, *, labels: Mapping[str, str]) -> Metric:  # noqa: N802 - the real name
        own = [f"{name}={value}" for name, value in labels.items() if name not in ("model", "version", "pid")]
        key = "".join([self.name, *(f"{{{each}}}" for each in own)])
        self.labels[key] = dict(labels)
        return self.made.setdefault(key, Metric())


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Exception | np.ndarray):
        return Tensor(name, value)
    if isinstance(value, str | bytes):
        value = [value]
    if value and isinstance(value[0], str | bytes):
        data = [item.encode() if isinstance(item, str) else item for item in value]
        return Tensor(name, np.array(data, dtype=np.object_))
    return Tensor(name, np.array(value, dtype=np.bool_ if value and isinstance(value[0], bool) else np.int32))
