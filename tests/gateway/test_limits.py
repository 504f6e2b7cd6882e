"""What is too large, too deep, too slow or too much is refused in bounded time, in OpenAI's shape."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from heptagram_gateway.errors import ApiError
from heptagram_gateway.json_body import parse_object
from heptagram_wire.events import Ping
from tests.client.samples import START, TEXT
from tests.gateway.front import HELLO, Running, running
from tests.gateway.scripted import ScriptedServer, endless, play
from tests.gateway.test_disconnect import send
from tests.gateway.test_errors import error_of

PATH = "/v1/chat/completions"


def read_all(client: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    received = b""
    client.settimeout(20)
    while piece := client.recv(65_536):
        received += piece
    client.close()
    return received


def refusal(raw: bytes) -> tuple[int, str]:
    """Status and code of a raw answer with OpenAI's error object."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/json" in head, raw
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split(b" ", 2)[1]), error["code"]


RAW: dict[str, tuple[bytes, str]] = {
    "surrogate": (rb'{"messages": [{"role": "user", "content": "emoji \ud83d"}]}', "surrogate"),
    "surrogate key": (rb'{"messages": [], "\ude00": 1}', "surrogate"),
    "twice": (b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}', "twice"),
    "nan": (b'{"messages": [], "max_tokens": NaN}', "NaN"),
    "infinity": (b'{"messages": [], "temperature": -Infinity}', "Infinity"),
    "1e999": (b'{"messages": [], "temperature": 1e999}', "double"),
    "digits": (b'{"max_tokens": ' + b"9" * 5_000 + b"}", "digits"),
    "broken": (b'{"model": "chat"', "not JSON"),
    "empty": (b"", "not JSON"),
    "list": (b"[]", "one JSON object"),
    "null": (b"null", "one JSON object"),
    "utf-8": (b'{"model": "\xff"}', "UTF-8"),
    "utf-16": ('{"model": "chat"}'.encode("utf-16"), "UTF-8"),
    "mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "deep list": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "deeper"),
    "deep object": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "deeper"),
    "open": (b"[" * 1_000_000, "deeper"),
    "rather deep": (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "deeper"),
}


@pytest.mark.parametrize(("body", "word"), RAW.values(), ids=RAW.keys())
def test_what_is_no_request(front: Running, body: bytes, word: str) -> None:
    """https://github.com/JustVugg/colibri/pull/1589 and its kind: a 400, no text of a library, no stream."""
    with front.http() as client:
        answer = client.post(PATH, content=body)
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["code"] == "invalid_json"
    assert word in error["message"]
    assert "codec" not in error["message"]
    assert not front.server.requests


def test_nul_and_whole_pairs_are_kept(front: Running) -> None:
    """A NUL is legal JSON; nothing is cut there."""
    content = "nul\0here \U0001f600 \u2028"
    assert front.post(messages=[{"role": "user", "content": content}]).status_code == 200
    assert front.server.requests[0][1]["messages"][0]["content"] == content
    assert parse_object(rb'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}


def test_depth_that_is_allowed() -> None:
    parse_object(b'{"a":' * 95 + b"1" + b"}" * 95)
    with pytest.raises(ApiError):
        parse_object(b'{"a":' * 97 + b"1" + b"}" * 97)


@pytest.fixture(scope="module")
def tight() -> Iterator[Running]:
    with running(
        play(TEXT), body_bytes=10_000, body_timeout=0.3, header_timeout=0.3, header_bytes=8_192, connections=20
    ) as front:
        yield front


@pytest.mark.parametrize("size", [10_001, 39_000, 10_000_000])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_that_is_too_large(tight: Running, size: int, chunked: bool) -> None:
    body = b'{"messages": "' + b"x" * size + b'"}'
    pieces = (body[start : start + 4_000] for start in range(0, len(body), 4_000))
    with tight.http() as client:
        answer = client.post(PATH, content=pieces if chunked else body)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "too_large"
    tight.at_rest()


def test_a_declared_size_is_refused_unread(tight: Running) -> None:
    client = tight.connect()
    client.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999\r\n\r\n" % PATH.encode())
    assert refusal(read_all(client)) == (413, "too_large")


def test_a_body_that_stalls(tight: Running) -> None:
    client = tight.connect()
    client.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{" % PATH.encode())
    assert refusal(read_all(client)) == (408, "timeout")
    tight.at_rest()


def test_a_body_that_drips(tight: Running) -> None:
    client = tight.connect()
    client.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" % PATH.encode())
    ended = False
    for _ in range(200):
        time.sleep(0.05)
        try:
            client.sendall(b" ")
        except OSError:
            ended = True
            break
    client.close()
    assert ended, "it was read for ever"
    tight.at_rest()


@pytest.mark.parametrize("start", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"])
def test_headers_that_stall(tight: Running, start: bytes) -> None:
    client = tight.connect()
    client.sendall(start)
    assert refusal(read_all(client)) == (408, "timeout")


def test_headers_that_stall_on_a_used_connection(tight: Running) -> None:
    client = tight.connect()
    client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    received = b""
    while b'"live"' not in received:
        received += client.recv(65_536)
    client.sendall(b"GET /health HTTP/1.1\r\n")
    assert refusal(read_all(client)) == (408, "timeout")


def test_headers_that_are_too_large(tight: Running) -> None:
    client = tight.connect()
    client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Large: " + b"x" * 9_000)
    assert refusal(read_all(client)) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /health\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_http(tight: Running, raw: bytes) -> None:
    client = tight.connect()
    client.sendall(raw)
    assert refusal(read_all(client)) == (400, "invalid_http")


def test_a_body_in_crumbs(front: Running) -> None:
    """https://github.com/triton-inference-server/server/pull/8770: one byte a chunk costs far more than a byte."""
    client = front.connect()
    client.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode())
    client.sendall(b"1\r\n \r\n" * 5_000)
    assert refusal(read_all(client)) == (400, "invalid_http")
    front.at_rest()


def test_a_body_in_many_fair_pieces(front: Running) -> None:
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "x" * 200_000}]}).encode()
    with front.http() as client:
        pieces = (body[start : start + 40] for start in range(0, len(body), 40))
        assert client.post(PATH, content=pieces).status_code == 200


def test_connections_are_bounded(tight: Running) -> None:
    crowd = [tight.connect() for _ in range(20)]
    time.sleep(0.05)
    assert refusal(read_all(tight.connect())) == (503, "overloaded")
    for client in crowd:
        client.close()
    tight.wait(lambda: tight.front is not None and not tight.front.server_state.connections)
    assert tight.get("/health").status_code == 200


def test_concurrency_is_bounded() -> None:
    with running(endless([START], repeat=Ping()), concurrency=2) as front:
        clients = [send(front, stream=True), send(front)]
        front.wait(lambda: front.server.live == 2)
        answer = front.post()
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert error_of(answer)["type"] == "rate_limit_error"
        assert front.get("/health").status_code == 200
        for client in clients:
            client.close()
        front.at_rest()
        front.server.script = play(TEXT)
        assert front.post().status_code == 200


def test_prompts_count_as_requests() -> None:
    with running(play(TEXT), concurrency=3) as front:
        assert front.post("/v1/completions", prompt=["a"] * 4).status_code == 429


def test_large_bodies_within_the_limit(front: Running, server: ScriptedServer) -> None:
    content = "x" * 3_000_000
    assert front.post(messages=[{"role": "user", "content": content}]).status_code == 200
    assert server.requests[0][1]["messages"][0]["content"] == content


def test_chunks_leave_at_once(front: Running, server: ScriptedServer) -> None:
    """Nagle's algorithm held the first chunk back for 40 ms."""
    server.script = endless([START], repeat=Ping())
    client = send(front, stream=True)
    front.wait(lambda: server.live == 1)
    assert front.front is not None
    connections = [each.transport.get_extra_info("socket") for each in front.front.server_state.connections]
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in connections)
    assert connections
    client.close()


def test_pipelined_requests(front: Running) -> None:
    body = json.dumps({"model": "chat", "messages": HELLO}).encode()
    one = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % (PATH.encode(), len(body))
    client = front.connect()
    client.sendall(one + b"\r\n" + body + one + b"Connection: close\r\n\r\n" + body)
    assert read_all(client).count(b'"Hello"') == 2
