"""Triton's gRPC stream, asyncio: one client object, one stream per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import IdleTimeoutError
from heptagram_client.transports.base import AsyncReply, Response
from heptagram_client.transports.tensors import map_error, map_exception, read_result, request_input

_END_GRACE_S = 5.0


class AsyncGrpcTransport:
    """``netloc`` is ``HOST:PORT`` of Triton's gRPC front. The channel is made inside the running event loop."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc
        self._client: Any = None

    async def open(self, model: str, body: str) -> AsyncReply:
        if self._client is None:
            self._client = InferenceServerClient(self._netloc)
        return _AsyncGrpcReply(self._client.stream_infer(_one(model, body)))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _AsyncGrpcReply:
    def __init__(self, responses: Any) -> None:
        self._responses = responses
        self._closed = False
        self._answered = False

    async def receive(self, timeout: float | None) -> Response | None:
        if self._closed:
            return None
        try:
            async with asyncio.timeout(timeout):
                result, error = await anext(self._responses)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            raise IdleTimeoutError(timeout or 0.0) from None
        except grpc.RpcError as rpc_error:
            if self._closed:
                return None
            raise map_error(rpc_error.details() or "no details", str(rpc_error.code())) from rpc_error
        except asyncio.CancelledError:
            if self._closed:  # our own cancel of the call, not one of this task
                return None
            raise
        if isinstance(error, InferenceServerException):
            self._answered = True
            raise map_exception(error) from error
        response = read_result(result)
        self._answered = response.final
        return response

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._answered:
                await self._await_end()
        finally:
            self._responses.cancel()

    async def _await_end(self) -> None:
        """subtle: a call that is cancelled just behind its last response makes tritonserver (2.51) hold the model for
        ever, so the server is given the time to end the stream."""
        with suppress(TimeoutError, StopAsyncIteration, grpc.RpcError):
            async with asyncio.timeout(_END_GRACE_S):
                while True:
                    await anext(self._responses)


async def _one(model: str, body: str) -> AsyncIterator[dict[str, Any]]:
    """The only request of the stream; Triton ends the stream after its last response."""
    yield {"model_name": model, "inputs": [request_input(body)]}
