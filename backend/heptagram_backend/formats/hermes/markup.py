"""The markup of Hermes-style calls, in the one canonical form that is rendered, enforced and read.

``<tool_call>`` newline, one JSON object, newline ``</tool_call>``; calls are separated by a newline, and so are the
``<tool_response>`` blocks that answer them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

Guard = Callable[[str], str]

CALL_BEGIN: Final = "<tool_call>"
CALL_END: Final = "</tool_call>"
BEFORE_NAME: Final = f'{CALL_BEGIN}\n{{"name": '
BEFORE_ARGUMENTS: Final = ', "arguments": '
AFTER_ARGUMENTS: Final = f"}}\n{CALL_END}"
BETWEEN_CALLS: Final = "\n"

RESULT_BEGIN: Final = "<tool_response>"
RESULT_END: Final = "</tool_response>"

_RESULT_TAG: Final = re.compile(r"<(?=/?tool_response>)")
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s",:]+|[,:]')


def quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def call_text(name: str, arguments: str, guarded: Guard = str) -> str:
    """A call; ``guarded`` is applied to what is not markup."""
    return f"{BEFORE_NAME}{guarded(quoted(name))}{BEFORE_ARGUMENTS}{guarded(arguments)}{AFTER_ARGUMENTS}"


def result_text(content: str) -> str:
    return f"{RESULT_BEGIN}\n{content}\n{RESULT_END}"


def without_result_tags(text: str) -> str:
    """Defuse result tags inside untrusted text: a user or a tool must not be able to forge the result of a call."""
    return _RESULT_TAG.sub("&lt;", text)


def canonical_arguments(text: str) -> str:
    """JSON text with canonical blanks and everything else as it is; text that is no JSON object stays untouched.

    >>> canonical_arguments('{"a":1.50,"b":[1,2]}')
    '{"a": 1.50, "b": [1, 2]}'
    """
    if not text.strip():
        return "{}"
    try:
        if not isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        return text
    return "".join(f"{token} " if token in ",:" else token for token in _JSON_TOKEN.findall(text))
