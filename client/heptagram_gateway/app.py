"""The ASGI application: paths, and the layers around them from the outside in.

``Observe`` (request id, metrics, access log, traces), CORS where it is on, ``ErrorBoundary``, the API key, the router.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from heptagram_client import AsyncClient
from heptagram_client.transports.base import AsyncTextTransport, AsyncTransport
from heptagram_gateway.auth import RequireKey
from heptagram_gateway.boundary import ErrorBoundary
from heptagram_gateway.chat.endpoint import ChatCompletions
from heptagram_gateway.completions.endpoint import Completions
from heptagram_gateway.completions.run import TextEngine
from heptagram_gateway.config import Config
from heptagram_gateway.gate import Gate
from heptagram_gateway.generation import Engine
from heptagram_gateway.messages.endpoint import CountTokens, Messages
from heptagram_gateway.metrics import Metrics
from heptagram_gateway.models import Models, ModelServer
from heptagram_gateway.observe import Observe, Write
from heptagram_gateway.openapi import openapi
from heptagram_gateway.page.static import PATHS, StaticFile
from heptagram_gateway.page.status import status
from heptagram_gateway.pages import MetricsPage, live, model_card, model_list, ready
from heptagram_gateway.responses.endpoint import Responses
from heptagram_gateway.services import Services
from heptagram_gateway.unknown import UnknownFields
from heptagram_telemetry.tracing import open_tracer

Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]  # an object: of a function Starlette makes another thing
# POST paths, each answered by an ASGI application made of the services.
POSTS: Final[Mapping[str, Callable[[Services], Endpoint]]] = {
    "/v1/chat/completions": ChatCompletions,
    "/v1/completions": Completions,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
    "/v1/messages/count_tokens": CountTokens,
}


def build_services(
    config: Config, transport: AsyncTransport, texts: AsyncTextTransport, server: ModelServer
) -> Services:
    """The services of one front over any way to a server; to be made inside the running event loop.

    Raises:
        TelemetryError: traces are wanted, but what writes them is not installed.
    """
    client = AsyncClient(transport=transport, idle_timeout=config.idle_timeout)
    return Services(
        config=config,
        engine=Engine(client),
        texts=TextEngine(texts, idle_timeout=config.idle_timeout),
        server=server,
        models=Models(config.served, server),
        gate=Gate(config.concurrency),
        metrics=Metrics(),
        unknown=UnknownFields(refuse=config.unknown_fields == "refuse"),
        tracer=open_tracer(config.telemetry, "heptagram-gateway"),
    )


def build_app(services: Services, write: Write) -> ASGIApp:
    """The application; ``write`` takes the record of each request."""
    app: ASGIApp = _router(services)
    if services.config.api_keys:
        app = RequireKey(app, keys=services.config.api_keys)
    app = ErrorBoundary(app)
    if services.config.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=services.config.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-request-id",),
        )
    return Observe(app, metrics=services.metrics, write=write, tracer=services.tracer, traced=POSTS.keys())


def _router(services: Services) -> Router:
    gets: dict[str, Endpoint] = {
        "/v1/models": model_list(services.models),
        "/v1/models/{id:path}": model_card(services.models),
        "/health": live(),
        "/health/ready": ready(services),
        "/metrics": MetricsPage(services.metrics),
        "/status": status(services),
        "/openapi.json": openapi(keys=bool(services.config.api_keys), version=version("heptagram")),
        **{path: StaticFile(name) for path, name in PATHS.items()},
    }
    routes = [Route(path, make(services), methods=["POST"]) for path, make in POSTS.items()]
    routes += [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
    return Router(routes, redirect_slashes=False)
