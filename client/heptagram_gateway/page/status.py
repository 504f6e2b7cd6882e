"""``GET /status``: what the page shows besides the models. Open like ``/metrics``: it tells no names and no content."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from heptagram_gateway.page.engine import EngineNumbers
from heptagram_gateway.pages import JsonPage, reason_not_ready
from heptagram_gateway.services import Services


def status(services: Services) -> JsonPage:
    """``reason`` is null where it is ready, ``engine`` where Triton's metrics cannot be read."""
    engine = EngineNumbers(services.config.triton_metrics)

    async def make(scope: Scope) -> Any:  # noqa: ARG001
        reason = await reason_not_ready(services)
        return {
            "ready": reason is None,
            "reason": reason and reason.message,
            "key_required": bool(services.config.api_keys),
            "gateway": {"running": services.gate.running, "limit": services.config.concurrency},
            "engine": await engine.read(),
        }

    return JsonPage("status", make)
