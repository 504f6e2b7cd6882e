"""The files of the page, as they lie in the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import send_body
from heptagram_gateway.record import record_of

# Paths and their files. The page names its own by relative paths, so that it works below a proxy's prefix.
PATHS: Final[Mapping[str, str]] = {
    "/": "index.html",
    "/page/style.css": "style.css",
    "/page/icon.svg": "icon.svg",
    "/page/main.js": "main.js",
    "/page/dom.js": "dom.js",
    "/page/api.js": "api.js",
    "/page/sse.js": "sse.js",
    "/page/status.js": "status.js",
    "/page/prompt.js": "prompt.js",
}
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


class StaticFile:
    """An ASGI application that answers with one file of the page."""

    def __init__(self, name: str) -> None:
        self._body = (files(__package__) / "files" / name).read_bytes()
        self._type = _TYPES[name.rpartition(".")[2]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        record_of(scope).endpoint = "page"
        await send_body(send, 200, self._body, self._type, _HEADERS)
