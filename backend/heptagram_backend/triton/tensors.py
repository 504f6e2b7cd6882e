"""Request tensors to plain values and back. Everything read is a copy: a request's memory ends with ``execute``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes


def read_bytes(request: Any, name: str) -> bytes | None:
    """Read a STRING [1] input, which Triton hands on as it came; ``None`` when it is missing.

    Raises:
        RequestError: not exactly one element.
    """
    value = _single(request, name)
    return value if value is None or isinstance(value, bytes) else str(value).encode("utf-8")


def require_bytes(request: Any, name: str, *, advice: str) -> bytes:
    """Read a STRING [1] input that must be there; ``advice`` tells the client what to send."""
    value = read_bytes(request, name)
    if value is None:
        raise RequestError(f"the input is missing; {advice}", code=codes.MISSING, param=name)
    return value


def read_text(request: Any, name: str) -> str | None:
    """As :func:`read_bytes`, for an input that must be UTF-8."""
    value = _single(request, name)
    return None if value is None else _text(value, name)


def require_text(request: Any, name: str, *, advice: str) -> str:
    """As :func:`require_bytes`, for an input that must be UTF-8."""
    return _text(require_bytes(request, name, advice=advice), name)


def read_texts(request: Any, name: str) -> tuple[str, ...] | None:
    """Read a STRING [-1] input; ``None`` when it is missing."""
    array = _array(request, name)
    return None if array is None else tuple(_text(value, name) for value in array.reshape(-1))


def read_flag(request: Any, name: str) -> bool:
    """Read a BOOL [1] input; False when it is missing."""
    return bool(_single(request, name))


def read_value(request: Any, name: str) -> Any:
    """Read an input of one number or flag as Python's own; ``None`` when it is missing."""
    value = _single(request, name)
    return None if value is None else value.item()


def read_token_ids(request: Any, name: str, *, advice: str) -> tuple[int, ...]:
    """Read an INT32 [-1] input that must be there."""
    array = _array(request, name)
    if array is None:
        raise RequestError(f"the input is missing; {advice}", code=codes.MISSING, param=name)
    return tuple(array.tolist())


def text_tensor(name: str, values: Sequence[str]) -> Any:
    """A STRING [len(values)] output."""
    return pb_utils.Tensor(name, text_array(values))


def text_array(values: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """What a STRING tensor is made of."""
    return np.array([value.encode("utf-8") for value in values], dtype=np.object_)


def number_tensor(name: str, values: Sequence[float], dtype: type[np.number[Any]]) -> Any:
    """An output of numbers, [len(values)]."""
    return pb_utils.Tensor(name, np.array(values, dtype=dtype))


def token_tensor(name: str, ids: Sequence[int]) -> Any:
    """An INT32 [len(ids)] output."""
    return pb_utils.Tensor(name, np.array(ids, dtype=np.int32))


def _array(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    try:
        return tensor.as_numpy()
    except Exception as error:  # the stub raises several unrelated types for malformed BYTES
        raise RequestError(f"cannot be read ({error})", code=codes.INVALID_VALUE, param=name) from error


def _text(value: Any, name: str) -> str:
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"not UTF-8 at byte {error.start}; send UTF-8 text", code=codes.INVALID_VALUE, param=name
        ) from error


def _single(request: Any, name: str) -> Any:
    array = _array(request, name)
    if array is None:
        return None
    if array.size != 1:
        raise RequestError(f"has {array.size} elements; send exactly one", code=codes.INVALID_VALUE, param=name)
    return array.reshape(-1)[0]
