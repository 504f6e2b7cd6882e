"""Where Triton's metrics are."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from heptagram_client.transports.address import Address

_PORT: Final = 8002
_PATH: Final = "/metrics"


def metrics_url(given: str | None, triton: Address) -> str:
    """``given``, which is HOST:PORT or a URL, written in full; without it, Triton's own port on the host of ``triton``.

    Raises:
        ValueError: it is neither.
    """
    if given is None:
        return _url(triton.host, _PORT, _PATH)
    parts = urlsplit(given if "://" in given else f"http://{given}")
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{given!r}: give HOST:PORT or http://HOST:PORT{_PATH}")
    return _url(parts.hostname, parts.port or _PORT, parts.path or _PATH)


def _url(host: str, port: int, path: str) -> str:
    return f"http://{Address('http', host, port).netloc}{path}"
