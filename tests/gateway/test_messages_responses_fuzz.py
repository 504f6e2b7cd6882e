"""Whatever is sent to the newer APIs, the answer has their shapes and is never a fault of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_gateway.errors import ApiError
from heptagram_gateway.messages.request import read_messages
from heptagram_gateway.messages.table import MESSAGES
from heptagram_gateway.responses.request import read_responses
from heptagram_gateway.responses.table import RESPONSES
from tests.gateway.front import Running
from tests.gateway.test_fuzz import _MANY
from tests.gateway.test_messages_stream import read

_WORDS = st.sampled_from(
    [
        *("message", "function_call", "function_call_output", "reasoning", "function", "namespace", "custom", "text"),
        *("input_text", "tool_use", "tool_result", "thinking", "image", "user", "assistant", "system", "auto", "any"),
        *("tool", "json_schema", "enabled", "disabled"),
    ]
)
_KEYS = st.sampled_from(
    [
        *(
            "type",
            "role",
            "content",
            "text",
            "call_id",
            "id",
            "name",
            "arguments",
            "input",
            "output",
            "tools",
            "summary",
            "tool_use_id",
        ),
        *("is_error", "input_schema", "parameters", "thinking", "format", "schema", "effort", "mode"),
    ]
)
# Objects as the APIs have them, with anything in their fields.
_OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | _WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=6,
)
_ITEM = st.builds(
    lambda kind, role, more: {**more, "type": kind, "role": role},
    _WORDS,
    _WORDS,
    st.dictionaries(_KEYS, _OBJECTS, max_size=4),
)
_ITEMS = st.lists(_ITEM, max_size=2)
_RESPONSES = sorted({*RESPONSES.passed, *RESPONSES.checked})
_MESSAGES = sorted({*MESSAGES.passed, *MESSAGES.checked})
_FEW = settings(_MANY, max_examples=50)


def _bodies(fields: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(fields) | st.text(max_size=8), _OBJECTS | _ITEMS, max_size=4)


def _post(front: Running, path: str, body: dict[str, Any]) -> httpx2.Response:
    with front.http() as client:
        answer = client.post(path, content=json.dumps(body))
    assert answer.status_code in (200, 400, 404), answer.text
    return answer


@_MANY
@given(body=_bodies(_RESPONSES), items=_ITEMS)
def test_reading_a_response_raises_nothing_else(body: dict[str, Any], items: Any) -> None:
    with suppress(ApiError):
        read_responses({"input": items, **body})


@_MANY
@given(body=_bodies(_MESSAGES), messages=_ITEMS, content=_ITEMS)
def test_reading_a_message_raises_nothing_else(body: dict[str, Any], messages: Any, content: Any) -> None:
    past = [{"role": role, "content": content} for role in ("user", "assistant")]
    for said in (messages, past):
        with suppress(ApiError):
            read_messages({"max_tokens": 9, "messages": said, **body})


@_FEW
@given(body=_bodies(_RESPONSES), fit=st.booleans())
def test_any_response(front: Running, body: dict[str, Any], fit: bool) -> None:
    answer = _post(front, "/v1/responses", {"model": "chat", "input": "x", **body} if fit else body)
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert "\nevent: response.completed\n" in answer.text
    else:
        assert answer.json()["output"][0]["content"][0]["text"] == "Hello"


@_FEW
@given(body=_bodies(_MESSAGES), fit=st.booleans(), count=st.booleans())
def test_any_message(front: Running, body: dict[str, Any], fit: bool, count: bool) -> None:
    good = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    path = "/v1/messages/count_tokens" if count else "/v1/messages"
    answer = _post(front, path, {**good, **body} if fit else body)
    if answer.status_code != 200:
        assert set(answer.json()) == {"type", "error", "request_id"}
    elif count:
        assert answer.json() == {"input_tokens": 10}
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert read(answer.text)[-1]["type"] == "message_stop"
    else:
        assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
