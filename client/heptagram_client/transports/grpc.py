"""Triton's gRPC stream, synchronous.

tritonclient allows one stream per client object and its stream errors carry no request id, so every request gets a
client object of its own. They share gRPC's connection.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from tritonclient.grpc import InferenceServerClient, InferResult
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import IdleTimeoutError
from heptagram_client.transports.base import Reply, Response, split_model
from heptagram_client.transports.carried import carried
from heptagram_client.transports.tensors import map_exception, read_result, request_input


class GrpcTransport:
    """``netloc`` is ``HOST:PORT`` of Triton's gRPC front."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc

    def open(self, model: str, body: str) -> Reply:
        return _GrpcReply(self._netloc, model, body)

    def close(self) -> None:
        """Nothing is shared between requests."""


class _GrpcReply:
    def __init__(self, netloc: str, model: str, body: str) -> None:
        self._inbox: SimpleQueue[InferResult | InferenceServerException | None] = SimpleQueue()
        self._closed = False
        self._answered = False
        self._client: Any = InferenceServerClient(netloc)
        self._client.start_stream(self._deliver)
        # Raises where the stream has died already (no server); then the cause is on its way to the inbox.
        name, version = split_model(model)
        with suppress(InferenceServerException):
            self._client.async_stream_infer(
                name, [request_input(body)], model_version=version, enable_empty_final_response=True, **carried()
            )

    def receive(self, timeout: float | None) -> Response | None:
        if self._closed:
            return None
        try:
            item = self._inbox.get(timeout=timeout)
        except Empty:
            raise IdleTimeoutError(timeout or 0.0) from None
        if isinstance(item, InferenceServerException):
            self._answered = True
            raise map_exception(item) from item
        response = None if item is None else read_result(item)
        self._answered = response is None or response.final
        return response

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._inbox.put(None)
        # subtle: a call that is cancelled just behind its last response makes tritonserver (2.51) hold the model for
        # ever. So an answered one is ended in order, which waits for the server's end of the stream.
        self._client.stop_stream(cancel_requests=not self._answered)
        self._client.close()

    def _deliver(self, result: InferResult | None, error: InferenceServerException | None) -> None:
        """Called on tritonclient's thread, which must never block."""
        self._inbox.put(result if error is None else error)
