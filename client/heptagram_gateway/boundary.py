"""Where errors become answers. Outside of it nothing of ours raises, and every error has the shape of its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heptagram_gateway.answer import send_json
from heptagram_gateway.errors import ApiError, ClientGoneError, openai_error, unexpected
from heptagram_gateway.messages.errors import anthropic_error
from heptagram_gateway.record import record_of

Shape = Callable[[ApiError], dict[str, Any]]
# Paths whose clients expect another error object than OpenAI's, with what is below them.
SHAPES: Final[Mapping[str, Shape]] = {"/v1/messages": anthropic_error}


class ErrorBoundary:
    """Wraps ``app``. An error behind the headers closes the connection: streams tell theirs before it comes to that."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        # Starlette's router then raises its 404 and 405 instead of answering them as plain text.
        scope["app"] = self
        try:
            await self._app(scope, receive, watched)
        except ClientGoneError:
            return
        except Exception as error:
            if started:
                raise
            await self._answer(scope, send, as_api_error(error))

    async def _answer(self, scope: Scope, send: Send, error: ApiError) -> None:
        record_of(scope).failed(error)
        shape = _shape(scope["path"])
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await send_json(send, error.status, shape(error), headers)


def _shape(path: str) -> Shape:
    return next((SHAPES[head] for head in SHAPES if f"{path}/".startswith(f"{head}/")), openai_error)


def as_api_error(error: Exception) -> ApiError:
    """Any exception as an ApiError."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, HTTPException):
        return unexpected(error)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = dict(error.headers or {})
        return ApiError(
            405, f"this path takes {allowed.get('Allow', 'other methods')}", "method_not_allowed", headers=allowed
        )
    return ApiError(404, "there is nothing at this path; the API is below /v1", "not_found")
