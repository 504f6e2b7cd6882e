"""The last check of what was generated: a JSON Schema library of other authors reads finished calls and answers.

It never fetches anything: a reference that leads out of a schema is a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import create
from referencing import Registry

from heptagram_backend.errors import EngineError
from heptagram_wire import errors as codes

CHECKED_FORMATS: Final = frozenset(("date", "ipv4", "ipv6", "json-pointer"))
"""Formats that the library decides exactly. Of the others it lets some wrong values through."""


class InvalidOutputError(EngineError):
    """What was generated breaks the promise; told as a ``failure`` and counted."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.wire = type(self.wire)(code=codes.INVALID_OUTPUT, message=message)


class OutputValidator:
    """Checks what is finished against the schemas of the request.

    Args:
        calls: by tool name; the arguments of other tools need only be JSON objects.
        answer: of the text of an answer without calls; ``None`` where it is free.
        may_be_cut: the caller's own stop tokens may cut the text; then text that is no JSON is not a fault.
    """

    def __init__(
        self, calls: Mapping[str, Any], answer: Mapping[str, Any] | None = None, *, may_be_cut: bool = False
    ) -> None:
        self._calls = calls
        self._answer = answer
        self._may_be_cut = may_be_cut

    @property
    def reads_text(self) -> bool:
        return self._answer is not None

    def check_call(self, name: str, arguments: str) -> None:
        """Read and validate the arguments of a finished call.

        Raises:
            InvalidOutputError: not one JSON object, a key twice, or not valid against the declared schema.
        """
        what = f"the arguments of {name!r} are"
        try:
            value = _read(arguments)
        except (ValueError, RecursionError) as error:
            raise InvalidOutputError(f"{what} not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise InvalidOutputError(f"{what} no JSON object")
        _validate(value, self._calls.get(name, True), what)

    def check_text(self, text: str) -> None:
        """Read and validate the text of a finished answer.

        Raises:
            InvalidOutputError: not one JSON value, a key twice, or not valid against the schema of the answer.
        """
        try:
            value = _read(text)
        except (ValueError, RecursionError) as error:
            if self._may_be_cut:
                return
            raise InvalidOutputError(f"the answer is not valid JSON ({error})") from error
        _validate(value, self._answer, "the answer is")


def _read(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _validate(value: Any, schema: Any, what: str) -> None:
    checker = _Validator(schema, format_checker=_Validator.FORMAT_CHECKER, registry=Registry())
    try:
        fault = best_match(checker.iter_errors(value))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # subtle: out of stack, the library's registry (Rust) panics, which is no Exception
        raise InvalidOutputError(f"{what} not to be checked against the schema ({type(error).__name__})") from error
    if isinstance(fault, ValidationError):
        raise InvalidOutputError(f"{what} not valid at {fault.json_path}: {fault.message}")


def _multiple_of(validator: Any, step: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """As the numbers are written: 0.07 is a multiple of 0.01, which it is not in binary."""
    if validator.is_type(value, "number") and Fraction(repr(value)) % Fraction(repr(step)):
        yield ValidationError(f"{value!r} is not a multiple of {step!r}")


_Validator: Final = create(
    Draft202012Validator.META_SCHEMA,
    {**Draft202012Validator.VALIDATORS, "multipleOf": _multiple_of},
    type_checker=Draft202012Validator.TYPE_CHECKER,
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
