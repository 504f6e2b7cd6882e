"""Whatever bytes come in: a request or a RequestError comes out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heptagram_backend.errors import RequestError
from heptagram_backend.requests.json_text import load_object
from heptagram_backend.requests.limits import RequestLimits
from heptagram_wire import errors as codes
from tests.preprocess.asking import LIMITS, body, parse, refused, tool

_TEXT = '{"messages":[{"role":"user","content":%s}]}'


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        '"x"',
        "{}{}",
        "{} x",
        '{"a":1,}',
        "{'a':1}",
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '{"a":01}',
        '{"a":"\t"}',
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        '{"a":"\\ud83d"}',
        '{"a":"x \\ude00 y"}',
        '{"\\ud83d":1}',
        '{"a":"\ud83d"}',
        '{"a":' + "9" * 500 + "}",
        b'{"model":"\xff"}',
        b"\xef\xbb\xbf{}",
        b"\xed\xa0\xbd{}",
        b"\x00",
        "{}\x00",
    ],
)
def test_what_is_no_json_object_is_refused(raw: str | bytes) -> None:
    assert refused(raw).code == codes.INVALID_JSON


@pytest.mark.parametrize("content", ['"nul \\u0000 here"', '"\\ud83d\\ude00"', '"😀"', '"\\u2028"'])
def test_all_whole_characters_are_kept(content: str) -> None:
    assert parse(_TEXT % content).messages[0].content == json.loads(content)


def test_size_and_depth_are_bounded() -> None:
    assert refused(_TEXT % json.dumps("x" * LIMITS.bytes)).code == codes.REQUEST_TOO_LARGE
    assert refused(("é" * (LIMITS.bytes // 2 + 1)).encode()).code == codes.REQUEST_TOO_LARGE
    assert refused("é" * (LIMITS.bytes // 2 + 1)).code == codes.REQUEST_TOO_LARGE
    for brackets in (LIMITS.depth + 1, 100_000):
        assert refused(f'{{"a":{"[" * brackets}{"]" * brackets}}}').code == codes.REQUEST_TOO_DEEP
    assert refused({"a": [0] * LIMITS.values}).code == codes.REQUEST_TOO_LARGE
    assert load_object('{"a":' + "[" * 90 + "]" * 90 + "}", RequestLimits())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b'{"messages":[{"role":"user","content":"\\uD800"}]}')
def test_arbitrary_bytes_never_raise_anything_else(raw: bytes) -> None:
    with pytest.raises(RequestError):
        parse(raw)


_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
_FIELDS = (
    "messages model tools tool_choice parallel_tool_calls response_format max_tokens max_completion_tokens stop n seed "
    "stop_token_ids ignore_eos stream temperature top_p top_k min_p logit_bias chat_template_kwargs heptagram priority "
    "user metadata stream_options modalities functions type role content tool_calls tool_call_id function name id text "
    "arguments parameters strict json_schema schema mode allowed_tools deadline_ms drafts properties required anyOf "
    "$ref enum const pattern items unevaluatedProperties"
)
_WORDS = [
    "function",
    "user",
    "assistant",
    "tool",
    "text",
    "required",
    "auto",
    "object",
    "json_schema",
    "#",
    "#/$defs/x",
]
# Objects with the right names and wrong values reach deep into the parser.
_LIKELY = st.recursive(
    st.one_of(_JSON, st.sampled_from(_WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_FIELDS.split()), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS.split()), _LIKELY, max_size=5))
def test_likely_objects_never_raise_anything_else(changes: dict[str, Any]) -> None:
    _survives(changes)
    _survives(body(**changes))
    _survives(body(tools=[tool(parameters=changes, strict=True)]))


def _survives(data: dict[str, Any]) -> None:
    with suppress(RequestError):
        parse(data)
