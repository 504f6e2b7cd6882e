"""Real gRPC and HTTP servers that speak Triton's protocols and answer as a test's script says."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from heptagram_wire.codec import encode_event
from heptagram_wire.events import Event


class Error(Exception):
    """A script raises it to answer with an error text; ``status`` is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


# An item is one response: events, raw texts, or None for a response without `events`.
Item = Iterable[Event | str] | None
Script = Callable[[dict[str, Any]], Iterator[Item]]


class Log:
    """What the server saw."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.left = threading.Event()  # a client went away while its script still ran


def texts_of(item: Iterable[Event | str]) -> list[str]:
    return [event if isinstance(event, str) else encode_event(event) for event in item]


class _Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, script: Script, log: Log) -> None:
        self._script = script
        self._log = log

    def ModelStreamInfer(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        for request in request_iterator:
            assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in request.inputs] == [
                ("request", "BYTES", [1])
            ]
            body = json.loads(request.raw_input_contents[0][4:])
            self._log.requests.append(body)
            done = threading.Event()
            context.add_callback(lambda done=done: None if done.is_set() else self._log.left.set())
            try:
                for item in self._script(body):
                    yield _grpc_response(item, final=False)
                done.set()
                yield _grpc_response(None, final=True)
            except Error as error:
                done.set()
                yield service_pb2.ModelStreamInferResponse(error_message=str(error))


def _grpc_response(item: Item, *, final: bool) -> Any:
    response = service_pb2.ModelStreamInferResponse()
    infer = response.infer_response
    infer.model_name = "chat"
    infer.parameters["triton_final_response"].bool_param = final
    if item is not None:
        elements = [text.encode() for text in texts_of(item)]
        output = infer.outputs.add()
        output.name, output.datatype = "events", "BYTES"
        output.shape.append(len(elements))
        infer.raw_output_contents.append(b"".join(struct.pack("<I", len(e)) + e for e in elements))
    return response


@contextmanager
def grpc_server(script: Script) -> Iterator[tuple[str, Log]]:
    log = Log()
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Servicer(script, log), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", log
    finally:
        server.stop(0).wait()


@contextmanager
def http_server(script: Script) -> Iterator[tuple[str, Log]]:
    log = Log()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v2/models/chat/generate_stream"
            body = json.loads(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"])
            log.requests.append(body)
            items = script(body)
            try:
                first = next(items, None)
            except Error as error:
                return self._refuse(error)
            self._begin()
            try:
                self._message(_http_message(first))
                for item in items:
                    self._message(_http_message(item))
                self._chunk(b"")
            except Error as error:
                self._message({"error": str(error)})
                self._chunk(b"")
            except OSError:
                log.left.set()
                self.close_connection = True

        def _refuse(self, error: Error) -> None:
            body = b"data: " + json.dumps({"error": str(error)}).encode() + b"\n\n"
            self.send_response(error.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _begin(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _message(self, data: dict[str, Any]) -> None:
            self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", log
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _http_message(item: Item) -> dict[str, Any]:
    """As Triton writes it: a one-element array arrives unwrapped."""
    message: dict[str, Any] = {"model_name": "chat", "model_version": "1"}
    if item is None:
        return message
    elements = texts_of(item)
    return message | {"events": elements[0] if len(elements) == 1 else elements}


def endless(events: Iterable[Event], repeat: Event) -> Script:
    """A script that never ends by itself: ``events``, then ``repeat`` every 20 ms."""

    def script(body: dict[str, Any]) -> Iterator[Item]:
        yield list(events)
        for _ in range(1500):
            time.sleep(0.02)
            yield [repeat]

    return script
