"""Our error text survives Triton's prefixes; Triton's own texts are not taken for ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_wire import errors
from heptagram_wire.errors import WireError, parse_error

codes = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
prefixes = st.sampled_from(["", "in ensemble 'chat', ", "in ensemble 'chat', Failed to process the request(s): "])


@given(prefixes, st.builds(WireError, codes, st.text(), st.none() | st.text(min_size=1)))
def test_round_trip_behind_any_prefix(prefix: str, error: WireError) -> None:
    assert parse_error(prefix + error.format()) == error


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Request for unknown model: 'chat' is not found",
        "[StatusCode.UNAVAILABLE] failed to connect to all addresses",
        "[request id: 7] unexpected datatype TYPE_INT32 for inference input 'request'",
        "inference input 'request' has wrong shape [2]",
    ],
)
def test_errors_of_triton_are_not_ours(text: str) -> None:
    assert parse_error(text) is None


def test_the_text_form() -> None:
    error = WireError(errors.MISSING, "give at least one message", "messages")
    assert error.format() == "[missing] messages: give at least one message"
    assert WireError(errors.OVERLOADED, "try again").format() == "[overloaded] -: try again"
    assert (
        WireError(errors.UNKNOWN_FIELD, "no such field", "a b: c").format()
        == "[unknown_field] a%20b%3A%20c: no such field"
    )
