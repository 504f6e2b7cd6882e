"""Ports and repositories that cannot be served."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import check_ports
from heptagram_backend.server.launch import free_address, free_ports, models_of


def test_a_busy_port_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} on 127\.0\.0\.1 cannot be used .*another --http-port"):
            check_ports("127.0.0.1", {"--http-port": port})


def test_free_ports_are_no_ephemeral_ones() -> None:
    """Another program's connection would get one before the server that wants it has loaded its models."""
    ephemeral, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < ephemeral
    with pytest.raises(OSError, match="assign requested address"):
        free_ports(1, "192.0.2.1")


def test_free_ports_pass() -> None:
    address = free_address()
    check_ports(address.host, {"--grpc-port": address.grpc_port, "--http-port": address.http_port})


@pytest.mark.parametrize(
    ("host", "ports", "says"),
    [
        ("127.0.0.1", {"--grpc-port": 0}, "a port is 1 to 65535"),
        ("127.0.0.1", {"--grpc-port": 70000}, "a port is 1 to 65535"),
        ("127.0.0.1", {"--grpc-port": 18123, "--http-port": 18123}, "already used by --grpc-port"),
        ("192.0.2.1", {"--grpc-port": 18123}, "port 18123 on 192.0.2.1 cannot be used"),
        ("no.such.host.invalid", {"--grpc-port": 18123}, "--host no.such.host.invalid"),
    ],
)
def test_wrong_addresses(host: str, ports: dict[str, int], says: str) -> None:
    with pytest.raises(LaunchError) as caught:
        check_ports(host, ports)
    assert says in str(caught.value)


def test_a_repository_needs_models(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no such folder"):
        models_of(tmp_path / "missing")
    with pytest.raises(LaunchError, match="no model in it"):
        models_of(tmp_path)
