"""Error codes and the one text form in which they cross Triton.

Triton carries a status and a text, nothing else. Ours reads ``[code] param: message`` with ``-`` for no param; Triton
puts ``in ensemble 'chat', `` and the like in front, so readers search for the bracket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

# Codes of a request that the client must change (Triton INVALID_ARG, HTTP 400).
INVALID_JSON: Final = "invalid_json"
INVALID_REQUEST: Final = "invalid_request"
MISSING: Final = "missing"
UNKNOWN_FIELD: Final = "unknown_field"
INVALID_TYPE: Final = "invalid_type"
INVALID_VALUE: Final = "invalid_value"
UNSUPPORTED: Final = "unsupported"
UNSUPPORTED_SCHEMA: Final = "unsupported_schema"
CONTEXT_LENGTH: Final = "context_length_exceeded"
MODEL_NOT_FOUND: Final = "model_not_found"
CONSTRAINT_UNAVAILABLE: Final = "constraint_unavailable"
# The same, of what is larger than the server's limits (`limits` of release.yaml), each limit by its own name.
TOO_LARGE: Final = "too_large"  # a list or a text without a name below
REQUEST_TOO_LARGE: Final = "request_too_large"
REQUEST_TOO_DEEP: Final = "request_too_deep"
TOO_MANY_TOOLS: Final = "too_many_tools"
TOO_MANY_CHOICES: Final = "too_many_choices"
SCHEMA_TOO_LARGE: Final = "schema_too_large"
SCHEMA_TOO_DEEP: Final = "schema_too_deep"
ENUM_TOO_LARGE: Final = "enum_too_large"
TOO_MANY_PROPERTIES: Final = "too_many_properties"
TOO_MANY_BRANCHES: Final = "too_many_branches"
PATTERN_TOO_LARGE: Final = "pattern_too_large"
STRING_TOO_LONG: Final = "string_too_long"
REPETITION_TOO_LARGE: Final = "repetition_too_large"
GRAMMAR_TOO_LARGE: Final = "grammar_too_large"
GRAMMAR_TOO_COSTLY: Final = "grammar_too_costly"
# Codes of the server's own state.
OVERLOADED: Final = "overloaded"
DRAINING: Final = "draining"
DEADLINE: Final = "deadline"
CANCELLED: Final = "cancelled"
INTERNAL: Final = "internal"
INVALID_OUTPUT: Final = "invalid_output"

SIZE_CODES: Final = frozenset(
    {
        TOO_LARGE,
        REQUEST_TOO_LARGE,
        REQUEST_TOO_DEEP,
        TOO_MANY_TOOLS,
        TOO_MANY_CHOICES,
        SCHEMA_TOO_LARGE,
        SCHEMA_TOO_DEEP,
        ENUM_TOO_LARGE,
        TOO_MANY_PROPERTIES,
        TOO_MANY_BRANCHES,
        PATTERN_TOO_LARGE,
        STRING_TOO_LONG,
        REPETITION_TOO_LARGE,
        GRAMMAR_TOO_LARGE,
        GRAMMAR_TOO_COSTLY,
    }
)  # a smaller request can succeed
BUSY_CODES: Final = frozenset({OVERLOADED, DRAINING})  # the same request can succeed later
FAILURE_CODES: Final = frozenset(
    {DEADLINE, CANCELLED, INTERNAL, INVALID_OUTPUT}
)  # the request was right, the run failed

_PATTERN = re.compile(r"\[(?P<code>[a-z][a-z0-9_]*)\] (?P<param>-|[^\s:]+): (?P<message>.*)", re.DOTALL)
_RESERVED = re.compile(r"[\s:%]|^-$")


@dataclass(frozen=True, slots=True)
class WireError:
    """A failure as it is told to the client: ``param`` names the field, ``message`` the fix."""

    code: str
    message: str
    param: str | None = None

    def format(self) -> str:
        """The text form; white space, ``:`` and ``%`` inside ``param`` (a caller's own key) are percent-encoded."""
        return f"[{self.code}] {_escape(self.param) if self.param else '-'}: {self.message}"


def parse_error(text: str) -> WireError | None:
    """Find our error inside a Triton error text; ``None`` when it is Triton's own."""
    match = _PATTERN.search(text)
    if match is None:
        return None
    param = match["param"]
    return WireError(match["code"], match["message"], None if param == "-" else unquote(param))


def _escape(param: str) -> str:
    return _RESERVED.sub(lambda match: "%2D" if match[0] == "-" else quote(match[0], safe=""), param)
