"""``GET /openapi.json``: what this front takes and answers, as OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.types import Scope

from heptagram_gateway.openapi_answers import ANSWERS
from heptagram_gateway.openapi_requests import BODIES, EXAMPLES
from heptagram_gateway.pages import JsonPage

# A POST path's operation, its tag, its answer, and whether that may be streamed.
_POSTS: Final[Mapping[str, tuple[str, str, str, bool]]] = {
    "/v1/chat/completions": ("createChatCompletion", "OpenAI", "ChatCompletion", True),
    "/v1/completions": ("createCompletion", "OpenAI", "TextCompletion", True),
    "/v1/responses": ("createResponse", "OpenAI", "Response", True),
    "/v1/messages": ("createMessage", "Anthropic", "Message", True),
    "/v1/messages/count_tokens": ("countTokens", "Anthropic", "TokenCount", False),
}
# A GET path's operation, its answer, and the errors it may end with.
_GETS: Final[Mapping[str, tuple[str, str, tuple[int, ...]]]] = {
    "/v1/models": ("listModels", "ModelList", (401, 503)),
    "/v1/models/{id}": ("getModel", "Model", (401, 404, 503)),
    "/health": ("isLive", "Live", ()),
    "/health/ready": ("isReady", "Ready", (503,)),
    "/status": ("getStatus", "Status", ()),
}
_ERRORS: Final[Mapping[int, str]] = {
    400: "A field is wrong or asks for what is not there; `param` names it",
    401: "No valid API key",
    404: "No such model or version",
    408: "The body did not arrive in time",
    413: "The body is too large",
    429: "Too many requests at once; see Retry-After",
    500: "A fault of ours; the log has it under the request id",
    502: "The model server failed",
    503: "Not ready, overloaded or shutting down; see Retry-After",
    504: "The model server is silent, or the request's deadline has passed",
}
_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "A model id, or ID@VERSION",
    "schema": {"type": "string", "minLength": 1},
}
_ABOUT: Final = (
    "Null fields count as absent. Unknown ones are ignored, or refused where the server runs with "
    "`--unknown-fields refuse`. With `stream` true the answer is a stream of server-sent events; whatever fails before "
    "its first event is told by the status, and later by an event. Fields without a type are checked by the model."
)


def document(*, keys: bool, version: str) -> dict[str, Any]:
    """The document; ``keys``: the paths below /v1 need an API key."""
    paths: dict[str, Any] = {path: {"post": _post(path)} for path in _POSTS}
    paths |= {path: {"get": _get(path)} for path in _GETS}
    security: dict[str, Any] = {"security": [{"bearer": []}, {"header": []}]} if keys else {}
    for path, item in paths.items():
        if path.startswith("/v1/"):
            next(iter(item.values())).update(security)
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    components = {"schemas": dict(ANSWERS), **({"securitySchemes": schemes} if keys else {})}
    info = {"title": "Heptagram gateway", "version": version, "description": _ABOUT}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def openapi(*, keys: bool, version: str) -> JsonPage:
    made = document(keys=keys, version=version)

    async def make(scope: Scope) -> Any:  # noqa: ARG001
        return made

    return JsonPage("openapi", make)


def _post(path: str) -> dict[str, Any]:
    operation, tag, answer, streams = _POSTS[path]
    content = _json(answer)
    if streams:
        content["text/event-stream"] = {}  # OpenAPI 3.1 has no words for the events
    shape = "AnthropicError" if tag == "Anthropic" else "Error"
    body = {"required": True, "content": {"application/json": {"schema": BODIES[path], "example": EXAMPLES[path]}}}
    responses = {"200": {"description": "The answer", "content": content}, **_errors(tuple(_ERRORS), shape)}
    return {"operationId": operation, "tags": [tag], "requestBody": body, "responses": responses}


def _get(path: str) -> dict[str, Any]:
    operation, answer, errors = _GETS[path]
    responses = {"200": {"description": "The answer", "content": _json(answer)}, **_errors(errors, "Error")}
    parameters = {"parameters": [_ID]} if "{id}" in path else {}
    return {"operationId": operation, "tags": ["About"], **parameters, "responses": responses}


def _errors(statuses: tuple[int, ...], shape: str) -> dict[str, Any]:
    return {str(status): {"description": _ERRORS[status], "content": _json(shape)} for status in statuses}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
