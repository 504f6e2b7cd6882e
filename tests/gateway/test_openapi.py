"""The OpenAPI document: it has every field of the tables, its types are those that are enforced, its answers come."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis import checks
from schemathesis.config import SchemathesisConfig

from heptagram_backend.conversation import Conventions
from heptagram_backend.errors import RequestError
from heptagram_backend.requests import RequestLimits, read_chat_request
from heptagram_client.errors import reported_error
from heptagram_gateway.app import POSTS
from heptagram_gateway.chat.table import CHAT
from heptagram_gateway.completions.request import COMPLETIONS
from heptagram_gateway.errors import ApiError
from heptagram_gateway.fields import Table
from heptagram_gateway.messages.table import MESSAGES
from heptagram_gateway.openapi import document
from heptagram_gateway.openapi_requests import BODIES
from heptagram_gateway.responses.table import RESPONSES
from heptagram_wire.errors import INVALID_TYPE
from heptagram_wire.events import Event
from tests.client.samples import CALL, TEXT
from tests.gateway.front import Running, running
from tests.gateway.test_completions import LAST, answering

TABLES: Mapping[str, Table] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
}
CHECKS = [
    getattr(checks, name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
]
_MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
_EFFORTS = Conventions(efforts=("low",), effort_range=(0, 9))
_VALUES = [None, True, False, 0, 1, 1.5, -1, "", "auto", "x" * 1025, [], ["a"], {}, {"a": 1}]


async def engine_like(request: dict[str, Any]) -> AsyncIterator[Sequence[Event]]:
    """The real reader of requests in front of a scripted answer."""
    try:
        read = read_chat_request(request, RequestLimits(), "chat")
    except RequestError as error:
        raise reported_error(error.wire) from None
    yield CALL if read.tools else TEXT


@pytest.fixture(scope="module")
def checked_front() -> Iterator[Running]:
    with running(engine_like, answering(LAST)) as front:
        yield front


def test_it_is_served_and_open() -> None:
    with running(engine_like, api_keys=("secret",)) as front:
        served = front.get("/openapi.json").json()
    assert served == json.loads(json.dumps(document(keys=True, version=served["info"]["version"])))
    assert served["paths"]["/v1/models"]["get"]["security"]
    assert "security" not in served["paths"]["/status"]["get"]
    assert "securitySchemes" not in document(keys=False, version="1")["components"]


def test_it_has_every_path_and_field() -> None:
    paths = document(keys=False, version="1")["paths"]
    assert {path for path, item in paths.items() if "post" in item} == set(POSTS) == set(TABLES)
    for path, table in TABLES.items():
        assert set(BODIES[path]["properties"]) == {*table.passed, *table.checked}
        Draft202012Validator.check_schema(BODIES[path])


@pytest.mark.parametrize("path", TABLES)
def test_what_is_settled_here_is_as_the_document_says(path: str) -> None:
    for name, check in TABLES[path].checked.items():
        says = Draft202012Validator(BODIES[path]["properties"][name])
        for value in filter(lambda value: value is not None, _VALUES):
            try:
                check(name, value)
                passes = True
            except ApiError:
                passes = False
            assert says.is_valid(value) == passes, (name, value)


def test_what_is_passed_on_is_as_the_document_says() -> None:
    """The reader behind us finds a wrong type exactly where the document has another one."""
    for name in CHAT.passed.keys() - {"functions", "function_call", "audio", "prediction", "web_search_options"}:
        says = Draft202012Validator(BODIES["/v1/chat/completions"]["properties"][name])
        for value in _VALUES:
            request = {"messages": [{"role": "user", "content": "x"}], name: value}
            try:
                read_chat_request(request, RequestLimits(), "chat", _EFFORTS)
                code = ""
            except RequestError as error:
                code = error.wire.code if _place(error) == name else ""
            if code == INVALID_TYPE:
                assert not says.is_valid(value), (name, value)
            elif not code:
                assert says.is_valid(value), (name, value)


@pytest.mark.parametrize("path", TABLES)
def test_the_examples_are_answered(checked_front: Running, path: str) -> None:
    told = checked_front.get("/openapi.json").json()
    operation = told["paths"][path]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    Draft202012Validator(body["schema"]).validate(body["example"])
    answers = operation["responses"]["200"]["content"]
    with checked_front.http() as client:
        whole = client.post(path, json=body["example"])
        assert whole.status_code == 200, whole.text
        Draft202012Validator({**answers["application/json"]["schema"], **told}).validate(whole.json())
        streamed = client.post(path, json={**body["example"], "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream") == ("text/event-stream" in answers)


def _place(error: RequestError) -> str:
    """The field of the body that an error is about."""
    return re.split(r"[.\[]", error.wire.param or "")[0]


def _run(front: Running, examples: int) -> None:
    """Every operation, with what fits the document and what does not."""
    config = SchemathesisConfig()
    schema = schemathesis.openapi.from_dict(front.get("/openapi.json").json(), config=config)
    schema.config.base_url = front.url
    found: list[Any] = list(schema.get_all_operations())
    for operation in [each.ok() for each in found]:
        cases: st.SearchStrategy[Any] = st.one_of([operation.as_strategy(mode) for mode in _MODES])

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=cases)
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        check()
    front.at_rest()


def test_answers_are_as_it_says(checked_front: Running) -> None:
    _run(checked_front, 4)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_answers_are_as_it_says_at_length(checked_front: Running) -> None:
    _run(checked_front, 400)
