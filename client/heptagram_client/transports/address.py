"""From a URL to the transport that serves it; a transport is imported when it is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast
from urllib.parse import urlsplit

from heptagram_client.transports.base import AsyncTransport, Transport

DEFAULT_URL = "localhost:8001"

_DEFAULT_PORTS = {"grpc": 8001, "http": 8000}
_SYNC = {
    "grpc": "heptagram_client.transports.grpc:GrpcTransport",
    "http": "heptagram_client.transports.http:HttpTransport",
}
_ASYNC = {
    "grpc": "heptagram_client.transports.grpc_aio:AsyncGrpcTransport",
    "http": "heptagram_client.transports.threaded:AsyncHttpTransport",
}


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Read ``HOST:PORT`` and ``grpc://HOST:PORT`` (gRPC) or ``http://HOST:PORT`` (Triton's HTTP front).

    Raises:
        ValueError: another scheme, no host, a bad port, or a path, which Triton's fronts do not have.
    """
    parts = urlsplit(url if "://" in url else f"grpc://{url}")
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{url!r}: scheme {parts.scheme!r} is not supported; write HOST:PORT, grpc:// or http://")
    if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url!r} is not HOST:PORT, grpc://HOST:PORT or http://HOST:PORT")
    return Address(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def transport_for(url: str) -> Transport:
    """The synchronous transport for a URL; nothing is connected yet."""
    address = parse_url(url)
    return cast(Transport, _load(_SYNC[address.scheme])(address.netloc))


def async_transport_for(url: str) -> AsyncTransport:
    """The asyncio transport for a URL; nothing is connected yet."""
    address = parse_url(url)
    return cast(AsyncTransport, _load(_ASYNC[address.scheme])(address.netloc))


def _load(path: str) -> type:
    module, name = path.split(":")
    return cast(type, getattr(import_module(module), name))
