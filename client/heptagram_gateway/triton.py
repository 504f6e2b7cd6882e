"""Triton's own answers about its models; the only user of tritonclient here. Answers are kept for a moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from heptagram_client.errors import ConnectError
from heptagram_client.transports.grpc_aio import CHANNEL
from heptagram_client.transports.tensors import map_exception
from heptagram_gateway.errors import ApiError, from_client
from heptagram_gateway.shares import KnownShares
from heptagram_wire import traffic

_LOG = logging.getLogger(__name__)
_KEPT_S: Final = 1.0
_TIMEOUT_S: Final = 5.0


class TritonModels:
    """:class:`heptagram_gateway.models.ModelServer` over gRPC. The channel is made inside the running event loop."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc
        self._client: Any = None
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._asking = asyncio.Lock()
        self._shares = KnownShares(self._ask_shares)

    async def versions(self, ensemble: str) -> tuple[str, ...]:
        async with self._asking:  # many waiting requests are one question
            at, versions = self._known.get(ensemble, (0.0, ()))
            if not at or time.monotonic() - at > _KEPT_S:
                versions = await self._ask(ensemble)
                self._known[ensemble] = (time.monotonic(), versions)
            return versions

    async def shares(self, ensemble: str) -> Mapping[str, int]:
        return await self._shares.of(ensemble)

    async def close(self) -> None:
        await self._shares.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, ensemble: str) -> tuple[str, ...]:
        metadata = await self._answer("get_model_metadata", ensemble)
        return () if metadata is None else tuple(metadata.versions)

    async def _ask_shares(self, ensemble: str) -> Mapping[str, int]:
        answer = await self._answer("get_model_config", ensemble)
        if answer is None or traffic.PARAMETER not in answer.config.parameters:
            return {}
        text = answer.config.parameters[traffic.PARAMETER].string_value
        try:
            return {str(version): weight for version, weight in traffic.read_traffic(text).items()}
        except ValueError as error:
            _LOG.error("the configuration of %s shares no requests: %s", ensemble, error)
            return {}

    async def _answer(self, question: str, ensemble: str) -> Any:
        """None where the model is not ready."""
        if self._client is None:
            self._client = InferenceServerClient(self._netloc, channel_args=list(CHANNEL))
        try:
            return await getattr(self._client, question)(ensemble, client_timeout=_TIMEOUT_S)
        except InferenceServerException as error:
            mapped = map_exception(error)
            # Triton also says UNAVAILABLE of a model that is not ready; only a lost connection is ours.
            if isinstance(mapped, ConnectError) and "is not ready" not in str(mapped):
                raise from_client(mapped) from error
            if str(error.status()) == "StatusCode.DEADLINE_EXCEEDED":
                raise ApiError(503, "the model server is silent", "unavailable") from error
            return None
