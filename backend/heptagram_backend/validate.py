"""The last check before ``call_end``: a JSON Schema library of other authors reads the finished call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from heptagram_backend.errors import EngineError
from heptagram_wire import errors as codes


class InvalidOutputError(EngineError):
    """What was generated breaks the promise; told as a ``failure`` and counted."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.wire = type(self.wire)(code=codes.INVALID_OUTPUT, message=message)


class CallValidator:
    """Checks finished calls against ``schemas`` (by tool name); tools that are not in it need only be JSON objects."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def check(self, name: str, arguments: str) -> None:
        """Read and validate the arguments of a finished call.

        Raises:
            InvalidOutputError: not one JSON object, a key twice, or not valid against the declared schema.
        """
        try:
            value = json.loads(arguments, object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidOutputError(f"the arguments of {name!r} are not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise InvalidOutputError(f"the arguments of {name!r} are no JSON object")
        schema = self._schemas.get(name)
        if schema is None:
            return
        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        fault = best_match(validator.iter_errors(value))
        if isinstance(fault, ValidationError):
            raise InvalidOutputError(f"the arguments of {name!r} do not validate at {fault.json_path}: {fault.message}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
