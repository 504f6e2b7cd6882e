"""Triton's own answers about its models; the only user of tritonclient here. Answers are kept for a moment."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import ConnectError
from heptagram_client.transports.grpc_aio import CHANNEL
from heptagram_client.transports.tensors import map_exception
from heptagram_gateway.errors import ApiError, from_client

_KEPT_S: Final = 1.0
_TIMEOUT_S: Final = 5.0


class TritonModels:
    """:class:`heptagram_gateway.models.ModelServer` over gRPC. The channel is made inside the running event loop."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc
        self._client: Any = None
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._asking = asyncio.Lock()

    async def versions(self, ensemble: str) -> tuple[str, ...]:
        async with self._asking:  # many waiting requests are one question
            at, versions = self._known.get(ensemble, (0.0, ()))
            if not at or time.monotonic() - at > _KEPT_S:
                versions = await self._ask(ensemble)
                self._known[ensemble] = (time.monotonic(), versions)
            return versions

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, ensemble: str) -> tuple[str, ...]:
        if self._client is None:
            self._client = InferenceServerClient(self._netloc, channel_args=list(CHANNEL))
        try:
            metadata = await self._client.get_model_metadata(ensemble, client_timeout=_TIMEOUT_S)
        except InferenceServerException as error:
            mapped = map_exception(error)
            # Triton also says UNAVAILABLE of a model that is not ready; only a lost connection is ours.
            if isinstance(mapped, ConnectError) and "is not ready" not in str(mapped):
                raise from_client(mapped) from error
            if str(error.status()) == "StatusCode.DEADLINE_EXCEEDED":
                raise ApiError(503, "the model server is silent", "unavailable") from error
            return ()
        return tuple(metadata.versions)
