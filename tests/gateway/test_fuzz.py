"""Whatever is sent, the answer is one of OpenAI's shapes and never a fault of ours."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from heptagram_gateway.chat.table import CHAT
from heptagram_gateway.completions.request import COMPLETIONS
from tests.gateway.front import Running, data_of

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = sorted({*CHAT.passed, *CHAT.checked, *COMPLETIONS.passed, *COMPLETIONS.checked})
_BODIES = st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=8), _JSON, max_size=5)
_PATHS = st.sampled_from(["/v1/chat/completions", "/v1/completions"])
_MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(answer: httpx2.Response) -> None:
    assert answer.status_code in (200, 400, 404, 405, 413), answer.text
    assert answer.headers["x-request-id"]
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert data_of(answer.text)[-1] == "[DONE]"
    else:
        ChatCompletion.model_validate(answer.json(), strict=True)


@_MANY
@given(body=_BODIES, messages=st.booleans(), model=st.booleans())
def test_any_object(front: Running, body: dict[str, Any], messages: bool, model: bool) -> None:
    if messages:
        body = {**body, "messages": [{"role": "user", "content": "x"}]}
    if model:
        body = {**body, "model": "chat"}
    with front.http() as client:
        check(client.post("/v1/chat/completions", content=json.dumps(body)))


@_MANY
@given(path=_PATHS, body=st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), _JSON))
def test_any_body(front: Running, path: str, body: bytes) -> None:
    with front.http() as client:
        answer = client.post(path, content=body)
    assert answer.status_code == 400 or (path == "/v1/chat/completions" and body[:1] == b"{")
    check(answer)
