"""Ports and repositories that cannot be served."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.arguments import parse_arguments
from heptagram_backend.server.checks import check_ports
from heptagram_backend.server.launch import free_address, free_ports, launch, models_of
from heptagram_backend.server.prepare import prepare
from heptagram_backend.server.progress import Progress
from tests.launcher.echo import write_echo


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


def test_a_path_that_the_stub_cannot_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interpreter has no locale: it died, and the server waited for it for ever."""
    abroad = tmp_path / "Müller"
    plain = write_echo(tmp_path / "plain")
    with pytest.raises(LaunchError, match=r"the model repository .*Müller.*: .* ASCII paths only"):
        launch(write_echo(abroad / "repository"), free_address())
    with monkeypatch.context() as patch:
        patch.setenv("HEPTAGRAM_CACHE", str(abroad))
        with pytest.raises(LaunchError, match=r"the cache folder \(HEPTAGRAM_CACHE\) .*Müller"):
            launch(plain, free_address())
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(abroad)])
        with pytest.raises(LaunchError, match=r"the import path has .*Müller"):
            launch(plain, free_address())
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (abroad / name).write_text("{}")
    release = f"served_model_name: echo\ncheckpoint: {abroad}\nformat: chatml_json\n"
    (plain / "echo" / "1" / "release.yaml").write_text(release, encoding="utf-8")
    with pytest.raises(LaunchError, match=r"the checkpoint .*Müller"):
        prepare(parse_arguments(["--model-repository", str(plain)]), Progress())


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
