"""A plan's JSON back into its dataclasses, each value checked against the type of its field.

``generate`` can be called by anybody, so a plan is a request like any other: what is not of its type must be refused
here, before it reaches the engine's thread.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, cast, get_args, get_origin, get_type_hints

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes

_NAMES = {str: "a string", int: "a whole number", bool: "true or false"}


def load(text: str) -> Any:
    """Parse a plan's text.

    Raises:
        RequestError: it is not JSON, or holds NaN or half a surrogate pair.
    """
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise fault("is not JSON") from None
    return data


def build(kind: type, data: Any, path: str = "", **given: Any) -> Any:
    """Make a ``kind`` of JSON data; ``given`` are fields that come from elsewhere.

    Raises:
        RequestError: a field is unknown, missing or of another type.
    """
    if not isinstance(data, dict):
        raise fault(f"`{path}` must be an object" if path else "it must be an object")
    hints = {name: hint for name, hint in _hints(kind).items() if name not in given}
    prefix = f"{path}." if path else ""
    for name in data:
        if name not in hints:
            raise fault(f"there is no field {json.dumps(prefix + name[:40])}")
    values = {name: _value(hints[name], value, prefix + name) for name, value in data.items()}
    for spec in fields(kind):
        if spec.name in hints.keys() - values.keys() and spec.default is MISSING and spec.default_factory is MISSING:
            raise fault(f"`{prefix}{spec.name}` is missing")
    return kind(**values, **given)


def fault(what: str) -> RequestError:
    return RequestError(
        f"not a plan that this version's preprocess writes ({what}); send requests to `chat` or `completions`",
        code=codes.INVALID_REQUEST,
        param="plan",
    )


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, path: str) -> Any:
    if type(None) in get_args(hint):
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not type(None))
    if is_dataclass(hint):
        return build(cast(type, hint), value, path)
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) and isinstance(value, str) else _wrong(path, f"one of {get_args(hint)}")
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            _wrong(path, "a list")
        return tuple(_value(get_args(hint)[0], item, f"{path}[{place}]") for place, item in enumerate(value))
    if hint is float:
        return (
            float(value)
            if type(value) in (int, float) and abs(value) <= sys.float_info.max
            else _wrong(path, "a number")
        )
    if hint in _NAMES:
        return value if type(value) is hint else _wrong(path, _NAMES[hint])
    if not isinstance(value, dict):  # what is left are mappings
        _wrong(path, "an object")
    kind = get_args(hint)[1]
    return value if kind is Any else {key: _value(kind, entry, f"{path}.{key[:40]}") for key, entry in value.items()}


def _wrong(path: str, wanted: str) -> NoReturn:
    raise fault(f"`{path}` must be {wanted}")
