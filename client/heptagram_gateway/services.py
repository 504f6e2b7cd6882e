"""What the endpoints share, made once for a front."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from heptagram_gateway.completions.run import TextEngine
from heptagram_gateway.config import Config
from heptagram_gateway.gate import Gate
from heptagram_gateway.generation import Engine
from heptagram_gateway.json_body import BodyLimits
from heptagram_gateway.metrics import Metrics
from heptagram_gateway.models import Models, ModelServer
from heptagram_gateway.unknown import UnknownFields
from heptagram_telemetry.tracing import Tracer


@dataclass(frozen=True, slots=True)
class Services:
    """``texts`` runs completions, ``server`` answers for Triton's models."""

    config: Config
    engine: Engine
    texts: TextEngine
    server: ModelServer
    models: Models
    gate: Gate
    metrics: Metrics
    unknown: UnknownFields
    tracer: Tracer

    @property
    def body_limits(self) -> BodyLimits:
        return BodyLimits(self.config.body_bytes, self.config.body_timeout)

    async def close(self) -> None:
        """Cancel what runs and close the connections."""
        await self.texts.close()
        await self.engine.close()
        await self.server.close()
        await asyncio.to_thread(self.tracer.close)
