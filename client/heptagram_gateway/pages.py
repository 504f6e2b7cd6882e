"""The paths that generate nothing: models, health, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import send_body, send_json
from heptagram_gateway.errors import ApiError, draining
from heptagram_gateway.gate import GateState
from heptagram_gateway.metrics import Metrics
from heptagram_gateway.models import Models
from heptagram_gateway.record import record_of
from heptagram_gateway.services import Services


class JsonPage:
    """An ASGI application that answers with what ``make`` returns; ``name`` is its label."""

    def __init__(self, name: str, make: Callable[[Scope], Awaitable[Any]]) -> None:
        self._name = name
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        record_of(scope).endpoint = self._name
        await send_json(send, 200, await self._make(scope))


class MetricsPage:
    """An ASGI application: Prometheus text."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        record_of(scope).endpoint = "metrics"
        await send_body(send, 200, self._metrics.render(), self._metrics.content_type)


def model_list(models: Models) -> JsonPage:
    async def make(scope: Scope) -> Any:  # noqa: ARG001
        return {"object": "list", "data": await models.cards()}

    return JsonPage("models", make)


def model_card(models: Models) -> JsonPage:
    async def make(scope: Scope) -> Any:
        return await models.card(scope["path_params"]["id"])

    return JsonPage("model", make)


def live() -> JsonPage:
    async def make(scope: Scope) -> Any:  # noqa: ARG001
        return {"status": "live"}

    return JsonPage("health", make)


def ready(services: Services) -> JsonPage:
    """200 where a chat can be asked now, else 503 with the reason."""

    async def make(scope: Scope) -> Any:  # noqa: ARG001
        reason = await reason_not_ready(services)
        if reason is not None:
            raise reason
        return {"status": "ready"}

    return JsonPage("ready", make)


async def reason_not_ready(services: Services) -> ApiError | None:
    """The 503 that a chat would get now, if any."""
    if services.gate.state is not GateState.OPEN:
        return draining()
    reason = await services.models.reason_not_ready()
    return None if reason is None else ApiError(503, reason, "not_ready", headers={"retry-after": "1"})
