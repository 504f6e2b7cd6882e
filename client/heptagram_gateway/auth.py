"""The API key: ``Authorization: Bearer KEY``, or ``x-api-key: KEY`` as Anthropic's clients send it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from heptagram_gateway.errors import ApiError

_PREFIX: Final = "/v1/"
_BEARER: Final = b"bearer "


class RequireKey:
    """Wraps ``app``: everything below ``/v1/`` needs one of ``keys``; health and metrics are open.

    Keys are compared by their digests in constant time, each with all of them.
    """

    def __init__(self, app: ASGIApp, *, keys: tuple[str, ...]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX) and not self._known(scope):
            raise ApiError(
                401,
                "no valid API key; send it as `Authorization: Bearer KEY`",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        await self._app(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        digest = _digest(_given(scope))
        return sum(hmac.compare_digest(digest, each) for each in self._digests) > 0  # all of them: no early end


def _given(scope: Scope) -> bytes:
    headers = dict(scope["headers"])
    authorization: bytes = headers.get(b"authorization", b"")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    key: bytes = headers.get(b"x-api-key", b"")
    return key


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
