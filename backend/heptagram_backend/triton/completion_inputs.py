"""The inputs of a completion as plain values, copied before ``execute`` returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.requests.completions import CompletionInputs
from heptagram_backend.triton.tensors import read_text, read_texts, read_value
from heptagram_wire import tensors as names

_RESERVED: Final = "triton_"  # parameters of Triton's own


def read_completion(request: Any) -> CompletionInputs | None:
    """Read a completion; ``None`` when no input of one is there.

    Raises:
        RequestError: an input has not one element, or is not text.
    """
    tensors: dict[str, Any] = {name: read_text(request, name) for name in names.COMPLETION_TEXTS}
    tensors |= {name: read_value(request, name) for name in (*names.COMPLETION_FLAGS, *names.COMPLETION_NUMBERS)}
    tensors[names.STOP_WORDS] = read_texts(request, names.STOP_WORDS)
    given = {name: value for name, value in tensors.items() if value is not None}
    return CompletionInputs(given, _parameters(request)) if given else None


def _parameters(request: Any) -> Mapping[str, Any]:
    parameters = json.loads(request.parameters() or "{}")
    return {name: value for name, value in parameters.items() if not name.startswith(_RESERVED)}
