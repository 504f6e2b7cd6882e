"""From a model repository to a starting server: find, check, assemble, start."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import check_install, check_ports
from heptagram_backend.server.environment import server_environment
from heptagram_backend.server.find import find_triton
from heptagram_backend.server.leftovers import clear_leftovers
from heptagram_backend.server.log import new_log
from heptagram_backend.server.process import Address, ServerProcess
from heptagram_backend.server.runtime import assemble


def launch(
    repository: Path,
    address: Address,
    *,
    threads: int = 1,
    reserved: Mapping[str, int] | None = None,
    variables: Mapping[str, str] | None = None,
    report: Callable[[str], object] = str,
) -> ServerProcess:
    """Start tritonserver on ``repository``; it is not ready yet.

    Args:
        repository: a Triton model repository.
        address: where the server listens.
        threads: compute threads of each process.
        reserved: further ports that must be free, by the flags that set them: for what is started later.
        variables: added to the environment of the server.
        report: told in a line what a killed server left behind and is removed now.

    Raises:
        LaunchError: something is missing or does not fit; the message says what to do.
    """
    models_of(repository)
    install = find_triton()
    check_install(install)
    clear_leftovers(report)
    check_ports(
        address.host,
        {
            "--grpc-port": address.grpc_port,
            "--http-port": address.http_port,
            "--metrics-port": address.metrics_port,
            **(reserved or {}),
        },
    )
    runtime = assemble(install)
    environment = server_environment(install, runtime, threads=threads, base={**os.environ, **(variables or {})})
    return ServerProcess.start(
        install=install,
        runtime=runtime,
        repository=repository.absolute(),
        address=address,
        log=new_log(),
        environment=environment,
    )


def models_of(repository: Path) -> list[str]:
    """Names of the models in a repository, sorted.

    Raises:
        LaunchError: there is no repository, or no model in it.
    """
    if not repository.is_dir():
        raise LaunchError(f"{repository}: no such folder; give a Triton model repository")
    models = sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))
    if not models:
        raise LaunchError(f"{repository}: no model in it (a folder with config.pbtxt); give a Triton model repository")
    return models


def free_address(host: str = "127.0.0.1") -> Address:
    """An address with three ports that are free now."""
    grpc_port, http_port, metrics_port = free_ports(3, host)
    return Address(host=host, grpc_port=grpc_port, http_port=http_port, metrics_port=metrics_port)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
