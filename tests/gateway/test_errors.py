"""Every failure has OpenAI's error object: as a status before ``start``, inside the stream behind it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from heptagram_client.errors import (
    ConnectError,
    HeptagramClientError,
    IdleTimeoutError,
    ProtocolError,
    ServerError,
    reported_error,
)
from heptagram_gateway.errors import from_client
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from heptagram_wire.events import Failure, Finish, Ping, TextDelta
from tests.client.samples import START, TEXT
from tests.gateway.front import Running, data_of, joined, running
from tests.gateway.scripted import ScriptedServer, play


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """The error object of an answer, checked for its shape."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def wire(code: str, param: str | None = None) -> HeptagramClientError:
    return reported_error(WireError(code, "what to do", param))


CASES: list[tuple[HeptagramClientError, int, str, str | None]] = [
    (wire(codes.INVALID_VALUE, "messages[0].role"), 400, codes.INVALID_VALUE, "messages[0].role"),
    (wire(codes.UNSUPPORTED, "temperature"), 400, codes.UNSUPPORTED, "temperature"),
    (wire(codes.UNSUPPORTED_SCHEMA, "tools[0]"), 400, codes.UNSUPPORTED_SCHEMA, "tools[0]"),
    (wire(codes.CONTEXT_LENGTH, "messages"), 400, codes.CONTEXT_LENGTH, "messages"),
    (wire(codes.CONSTRAINT_UNAVAILABLE), 400, codes.CONSTRAINT_UNAVAILABLE, None),
    (wire("a_code_of_tomorrow"), 400, "a_code_of_tomorrow", None),
    (wire(codes.TOO_LARGE), 413, codes.TOO_LARGE, None),
    (wire(codes.TOO_LARGE, "tools"), 400, codes.TOO_LARGE, "tools"),
    (wire(codes.MODEL_NOT_FOUND, "model"), 404, codes.MODEL_NOT_FOUND, "model"),
    (wire(codes.OVERLOADED), 503, codes.OVERLOADED, None),
    (wire(codes.DRAINING), 503, codes.DRAINING, None),
    (wire(codes.DEADLINE), 504, codes.DEADLINE, None),
    (wire(codes.CANCELLED), 503, codes.CANCELLED, None),
    (wire(codes.INTERNAL), 500, codes.INTERNAL, None),
    (wire(codes.INVALID_OUTPUT), 500, codes.INVALID_OUTPUT, None),
    (ConnectError("secret"), 503, "unavailable", None),
    (IdleTimeoutError(3), 504, "timeout", None),
    (ProtocolError("secret"), 502, "bad_gateway", None),
    (ServerError("in ensemble 'chat', secret"), 502, "bad_gateway", None),
    (ServerError("Request for unknown model: 'chat' secret"), 503, "model_not_ready", None),
    (ServerError("Model chat secret is not ready"), 503, "model_not_ready", None),
    (HeptagramClientError("secret"), 502, "bad_gateway", None),
]


@pytest.mark.parametrize(("error", "status", "code", "param"), CASES)
def test_the_mapping(error: HeptagramClientError, status: int, code: str, param: str | None) -> None:
    mapped = from_client(error)
    assert (mapped.status, mapped.code, mapped.param) == (status, code, param)
    assert "secret" not in mapped.message
    if status == 503 and code != codes.CANCELLED:
        assert mapped.headers["retry-after"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("error", "status", "code", "param"), CASES[::5])
def test_before_start_it_is_a_status(
    front: Running, error: HeptagramClientError, status: int, code: str, param: str | None, stream: bool
) -> None:
    front.server.script = play([Ping()], error)
    answer = front.post(stream=stream)
    told = error_of(answer)
    assert (answer.status_code, told["code"], told["param"]) == (status, code, param)


def test_overload_says_when_to_come_back(front: Running) -> None:
    front.server.script = play(wire(codes.OVERLOADED))
    assert front.post(stream=True).headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("ending", "status", "code"),
    [
        ([Failure(codes.INVALID_OUTPUT, "the call does not match")], 500, codes.INVALID_OUTPUT),
        ([Finish("deadline")], 504, codes.DEADLINE),
        ([Finish("cancelled")], 503, codes.CANCELLED),
        (ServerError("Stub process is not healthy."), 502, "bad_gateway"),
        (IdleTimeoutError(1), 504, "timeout"),
        (ConnectError("gone"), 503, "unavailable"),
    ],
)
def test_after_start_it_is_in_the_stream(front: Running, ending: Any, status: int, code: str) -> None:
    front.server.script = play([START], [TextDelta("Hel")], ending)
    chunks = front.chunks(stream_options={"include_usage": True})
    assert joined(chunks[:-2] + chunks[-1:], "content") == "Hel"
    assert chunks[-2]["error"]["code"] == code
    assert set(chunks[-2]["error"]) == {"message", "type", "param", "code"}
    assert chunks[-1] == "[DONE]"
    assert not any(chunk.get("usage") for chunk in chunks[:-1])
    answer = front.post()
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert [line["error"] for line in front.lines(2)] == [code, code]


def test_a_failure_before_start(front: Running) -> None:
    front.server.script = play([Failure(codes.INTERNAL, "no")])
    assert front.post(stream=True).status_code == 500


def test_the_stream_of_the_server_breaks_off(front: Running) -> None:
    front.server.script = play([START], [TextDelta("a")])
    assert front.chunks()[-2]["error"]["code"] == "bad_gateway"


def test_silence_before_start() -> None:
    with running(play(30.0), idle_timeout=0.2) as front:
        assert front.post(stream=True).status_code == 504


def test_a_lost_connection_is_tried_again_before_start(front: Running) -> None:
    front.server.script = play(ConnectError("no"))
    assert front.post().status_code == 503
    assert len(front.server.requests) == 3

    front.server.requests.clear()
    first = play(ConnectError("no"))
    second = play(TEXT)
    front.server.script = lambda request: (first if len(front.server.requests) == 1 else second)(request)
    assert front.post().json()["choices"][0]["message"]["content"] == "Hello"


def test_after_start_nothing_is_tried_again(front: Running) -> None:
    front.server.script = play([START], ConnectError("no"))
    assert front.post().status_code == 503
    assert len(front.server.requests) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/docs", 404),
        ("POST", "/v1/embeddings", 404),
        ("BREW", "/v1/%2e%2e/models", 404),
    ],
)
def test_paths_and_methods(front: Running, method: str, path: str, status: int) -> None:
    front.server.script = play(TEXT)
    with front.http() as client:
        answer = client.request(method, path)
        assert answer.status_code == status
        error_of(answer)
        assert ("allow" in answer.headers) == (status == 405)


def test_a_bug_of_ours_is_a_500_without_its_text(
    front: Running, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(ensemble: str) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(server, "versions", broken)
    answer = front.get("/v1/models")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    error_of(answer)
    assert "ZeroDivisionError: secret" in caplog.text


def test_an_error_object_of_a_stream_raises_in_openais_client(front: Running) -> None:
    from openai import APIError

    front.server.script = play([START], [TextDelta("a")], [Failure(codes.INTERNAL, "it broke")])
    with pytest.raises(APIError, match="it broke"):
        list(
            front.openai().chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "x"}], stream=True
            )
        )


def test_data_of_reads_events() -> None:
    assert data_of('data: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}, "[DONE]"]
