"""Completion requests for tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.requests import RequestLimits
from heptagram_backend.requests.completions import CompletionInputs, CompletionRequest, parse_completion
from heptagram_wire.errors import WireError, parse_error


def parse(sampling: Any = None, /, *, parameters: dict[str, Any] | None = None, **tensors: Any) -> CompletionRequest:
    """A request of ``text_input`` "hi" and more; ``sampling`` is written as JSON unless it is a text."""
    if sampling is not None:
        tensors["sampling_parameters"] = sampling if isinstance(sampling, str) else json.dumps(sampling)
    return parse_completion(CompletionInputs({"text_input": "hi"} | tensors, parameters or {}), RequestLimits())


def refused(*args: Any, **kwargs: Any) -> WireError:
    """The error that a request meets. It must survive the way through Triton as text."""
    with pytest.raises(RequestError) as caught:
        parse(*args, **kwargs)
    wire = caught.value.wire
    assert parse_error(f"in ensemble 'completions', {wire.format()}") == wire
    return wire
