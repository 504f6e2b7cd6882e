"""What users of Triton have run into in public, tried on our repository; docs/triton.md tells what is Triton's own.

Each test names the public report. The inputs are made here.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from heptagram_wire import tensors as names
from heptagram_wire.codec import decode_event
from heptagram_wire.events import Finish
from tests.server.probe import Script
from tests.server.repository import write_probes
from tests.server.served import Answer, Served, text_input
from tests.server_fixture import running_server

pytestmark = pytest.mark.server

ONE = Script(deltas=2, step_ms=1, stream=False).to_json()
LONG = Script(deltas=100_000, step_ms=5).to_json()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_probes(tmp_path_factory.mktemp("cases") / "repository")


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Served]:
    """A server of its own: some of these tests leave a mark on Triton itself, so it is not stopped in order."""
    with running_server(repository) as process:
        yield Served(process)
        process.stop(timeout_s=1)


@pytest.fixture(autouse=True)
def alive_and_answering(server: Served) -> Iterator[None]:
    yield
    assert server.process.poll() is None
    assert server.generate(ONE).status == 200
    server.settle()


def connect(server: Served) -> socket.socket:
    host, port = server.process.address.http_url.split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def post(connection: socket.socket, path: str, body: bytes, *, length: int | None = None) -> None:
    head = f"POST /v2/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    connection.sendall(head.encode() + body)


@pytest.mark.parametrize("rst", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_closed_connections(server: Served, after: int, rst: bool) -> None:
    """triton-inference-server/tensorrtllm_backend issues 146 and 176: closing in the middle crashed the server."""
    before = server.settle()
    for _ in range(10):
        with connect(server) as connection:
            post(connection, "models/chat/generate_stream", json.dumps({names.REQUEST: LONG}).encode())
            seen = b""
            while seen.count(b"data: ") < after + 1:
                seen += connection.recv(4096)
            if rst:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.settle()
    server.grown("requests_cancelled_total", before, 10)
    server.reload()


def test_one_answer_or_one_clear_error_whatever_the_call(server: Served) -> None:
    """triton-inference-server/server issue 7458: unary calls of a model that streams."""
    assert isinstance(last(server.generate(ONE)), Finish)
    assert isinstance(last(server.generate(ONE, stream=True)), Finish)
    with server.chat(ONE) as stream:
        [received] = stream.rest()
    assert isinstance(received.events[-1], Finish)
    assert "exactly 1 response" in server.generate(Script(deltas=2, step_ms=1).to_json()).error
    infer = server.post("models/chat/infer", {"inputs": [{"name": "request", "datatype": "BYTES", "shape": [1]}]})
    assert (infer.status, "decoupled transaction policy" in infer.error) == (501, True)
    with triton.InferenceServerClient(server.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
        client.infer(names.CHAT, [text_input(names.REQUEST, ONE)])
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def last(answer: Answer) -> Any:
    """The last event of one whole answer."""
    [message] = answer.messages
    return decode_event(message[names.EVENTS][-1])


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\x03\x03\x03\x03A", "incomplete string data"),
        (b"\xff\xff\xff\xffA", "incomplete string data"),
        (b"\x02\x00\x00\x00\xff\x28", "[invalid_json] request: "),
        (b"\x01\x00\x00\x00\x00", "[invalid_json] request: "),
        (b"", "expected 1 string elements"),
        (b"\x00" * 8, "unexpected number of string elements 2"),
    ],
    ids=["length", "huge-length", "no-utf-8", "nul", "empty", "two"],
)
def test_broken_string_tensors(server: Served, raw: bytes, told: str) -> None:
    """triton-inference-server/server issue 7391: a wrong length prefix failed deep inside a stub."""
    tensor = triton.InferInput(names.REQUEST, [1], "BYTES")
    tensor._raw_content = raw
    with triton.InferenceServerClient(server.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
        client.infer(names.PREPROCESS, [tensor])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert told in caught.value.message()
    with server.stream(tensor) as stream:
        [received] = stream.rest()
    assert told in (received.error or "")


def test_loads_and_unloads(server: Served) -> None:
    """triton-inference-server/server issues 4844 and 5381: a load behind an unload crashed; loads twice at once."""
    for _ in range(3):
        server.reload(names.GENERATE)
        assert server.generate(ONE).status == 200
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.post("repository/models/generate/load", {}).status, range(4)))
    assert answers == [200] * 4


def test_a_bad_config_is_refused_and_the_old_version_serves_on(server: Served, repository: Path) -> None:
    """Issue 4844 again, and our own contract for a release that does not fit."""
    override = {"parameters": {"config": '{"parameters": {"k": "seven"}}'}}
    answer = server.post("repository/models/generate/load", override)
    assert (answer.status, "failed to load 'generate'" in answer.error) == (500, True)
    assert server.generate(ONE).status == 200
    release = repository / names.GENERATE / "1" / "release.yaml"
    good = release.read_text()
    release.write_text("served_model_name: [")
    try:
        answer = server.post("repository/models/generate/load", {})
        assert (answer.status, "release.yaml" in answer.error) == (400, True)
        assert server.state(names.GENERATE) == "READY"
        assert server.generate(ONE).status == 200
    finally:
        release.write_text(good)
        server.post("repository/models/generate/load", {})


def test_many_tiny_chunks(server: Served) -> None:
    """triton-inference-server/server pull 8770, CVE-2025-23310. They cost memory (docs/triton.md), not the server."""
    with connect(server) as connection:
        connection.sendall(b"POST /v2/models/chat/generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 500")


def test_a_huge_header(server: Served) -> None:
    with connect(server) as connection:
        try:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * (1 << 20) + b"\r\n\r\n")
            assert b" 200 " not in connection.recv(4096)
        except ConnectionError:
            pass


def test_slow_senders_hold_nobody_up(server: Served) -> None:
    slow = [connect(server) for _ in range(60)]
    for connection in slow:
        post(connection, "models/chat/generate", b"{", length=100)
    began = time.monotonic()
    assert server.generate(ONE).status == 200
    assert time.monotonic() - began < 5
    for connection in slow:
        connection.close()


def test_deep_nesting_of_a_body(server: Served) -> None:
    body = b'{"request":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    assert server.post("models/chat/generate", body).status == 400


def test_shared_memory_is_closed_to_clients(server: Served) -> None:
    """triton-inference-server/server pull 8936: a request that refers to shared memory ended the process."""
    region = {"key": "/x", "offset": 0, "byte_size": 16}
    assert server.post("systemsharedmemory/region/r/register", region).status == 403
    with triton.InferenceServerClient(server.grpc_url) as client:
        for call in (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status):
            with pytest.raises(InferenceServerException, match="restricted"):
                call()
        tensor = triton.InferInput(names.REQUEST, [1], "BYTES")
        tensor.set_shared_memory("r", 16, offset=9007199254740991)
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region"):
            client.infer(names.PREPROCESS, [tensor])
    with server.stream(tensor) as stream:
        [received] = stream.rest()
    assert "Unable to find shared memory region" in (received.error or "")
