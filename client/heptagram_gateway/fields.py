"""Which fields of a request go on, which are settled here, and which nobody knows. Pure functions.

A :class:`Table` says it for one API. ``null`` counts as absent, down to the objects of a known shape; what a schema or
a call's arguments hold is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_gateway.errors import ApiError, invalid
from heptagram_wire.errors import UNSUPPORTED

_SHOWN: Final = 64
Check = Callable[[str, Any], None]  # (path, value); raises ApiError


@dataclass(frozen=True, slots=True)
class Each:
    """A list of objects of one shape; another value is left as it is."""

    shape: Shape


# The known keys of an object. None: the value is passed on as it is.
Shape = Mapping[str, "Shape | Each | None"]


@dataclass(frozen=True, slots=True)
class Table:
    """``passed`` goes on to the backend, which decides; ``checked`` must pass its check and ends here."""

    passed: Shape
    checked: Mapping[str, Check]


@dataclass(frozen=True, slots=True)
class Sorted:
    """``unknown`` are places such as ``messages[].mood``, without their values."""

    passed: dict[str, Any]
    unknown: tuple[str, ...]


def sort_fields(data: Mapping[str, Any], table: Table) -> Sorted:
    """Sort the fields of a request; raises what the checks raise."""
    unknown: dict[str, None] = {}
    mine = {key: value for key, value in data.items() if key not in table.checked}
    for key, check in table.checked.items():
        value = data.get(key)
        if value is not None:
            check(key, value)
    passed = _known(mine, table.passed, "", unknown)
    return Sorted(passed, tuple(unknown))


def _known(data: Mapping[str, Any], shape: Shape, path: str, unknown: dict[str, None]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in data.items():
        if key not in shape:
            unknown[f"{path}{key[:_SHOWN]}"] = None
        elif value is not None:
            kept[key] = _value(value, shape[key], f"{path}{key}", unknown)
    return kept


def _value(value: Any, shape: Shape | Each | None, path: str, unknown: dict[str, None]) -> Any:
    if isinstance(shape, Each):
        if not isinstance(value, list):
            return value
        return [_object(entry, shape.shape, f"{path}[].", unknown) for entry in value]
    return value if shape is None else _object(value, shape, f"{path}.", unknown)


def _object(value: Any, shape: Shape, path: str, unknown: dict[str, None]) -> Any:
    return _known(value, shape, path, unknown) if isinstance(value, dict) else value


def text(path: str, value: Any) -> None:
    """Any short text."""
    if not isinstance(value, str):
        raise _wrong(path, "a string")
    if len(value) > 1024:
        raise invalid(path, "longer than 1024 characters; shorten it")


def flag(path: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _wrong(path, "true or false")


def number(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, "a number")


def mapping(path: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, "an object")


@dataclass(frozen=True, slots=True)
class Only:
    """A check that passes the ``neutral`` values only, which change nothing here; others are refused with ``code``."""

    neutral: tuple[Any, ...]
    advice: str
    code: str

    def __call__(self, path: str, value: Any) -> None:
        if not any(value == each and type(value) is type(each) for each in self.neutral):
            raise ApiError(400, f"not supported; {self.advice}", self.code, path)


def only(*neutral: Any, advice: str = "leave it out", code: str = UNSUPPORTED) -> Check:
    return Only(neutral, advice, code)


def _wrong(path: str, expected: str) -> ApiError:
    return invalid(path, f"must be {expected}", "invalid_type")
