"""Triton's gRPC stream, asyncio: one client object, one stream per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import grpc
from tritonclient.grpc import InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import IdleTimeoutError
from heptagram_client.transports.base import AsyncReply, AsyncTextReply, split_model
from heptagram_client.transports.carried import carried
from heptagram_client.transports.tensors import (
    completion_inputs,
    map_error,
    map_exception,
    read_completion,
    read_result,
    request_input,
)

_END_GRACE_S = 5.0
_LONGEST = 2**31 - 1
# gRPC waits up to two minutes before it looks for a server again; one that was started anew is to be found at once.
CHANNEL: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", _LONGEST),
    ("grpc.max_receive_message_length", _LONGEST),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class _Final(Protocol):
    @property
    def final(self) -> bool: ...


_Read = TypeVar("_Read", bound=_Final)


class AsyncGrpcTransport:
    """``netloc`` is ``HOST:PORT`` of Triton's gRPC front. The channel is made inside the running event loop."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc
        self._client: Any = None

    async def open(self, model: str, body: str) -> AsyncReply:
        return _AsyncGrpcReply(self._infer(model, [request_input(body)]), read_result)

    async def open_completion(self, model: str, inputs: Mapping[str, Any]) -> AsyncTextReply:
        return _AsyncGrpcReply(self._infer(model, completion_inputs(inputs)), read_completion)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _infer(self, model: str, inputs: Sequence[Any]) -> Any:
        if self._client is None:
            self._client = InferenceServerClient(self._netloc, channel_args=list(CHANNEL))
        return self._client.stream_infer(_one(model, inputs, carried()))


class _AsyncGrpcReply(Generic[_Read]):
    """``read`` turns one response of Triton into ours."""

    def __init__(self, responses: Any, read: Callable[[InferResult], _Read]) -> None:
        self._responses = responses
        self._read = read
        self._closed = False
        self._answered = False

    async def receive(self, timeout: float | None) -> _Read | None:
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
        response = self._read(result)
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


async def _one(model: str, inputs: Sequence[Any], ids: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The only request of the stream; Triton ends the stream after its last response."""
    name, version = split_model(model)
    yield {"model_name": name, "model_version": version, "inputs": list(inputs), **ids}
