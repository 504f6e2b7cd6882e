"""From a model repository to a starting server: find, check, assemble, start."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import check_cache_path, check_import_path, check_install, check_path, check_ports
from heptagram_backend.server.control_key import Restricted
from heptagram_backend.server.environment import server_environment
from heptagram_backend.server.find import find_triton
from heptagram_backend.server.leftovers import clear_leftovers
from heptagram_backend.server.log import new_log
from heptagram_backend.server.process import Address, ServerProcess
from heptagram_backend.server.runtime import assemble

# Below those that Linux gives to sockets without a port of their own, 32,768 to 60,999 by default.
_NEVER_BY_CHANCE: Final = range(16_384, 32_768)


def launch(
    repository: Path,
    address: Address,
    *,
    threads: int = 1,
    control_key: str | None = None,
    reserved: Mapping[str, int] | None = None,
    variables: Mapping[str, str] | None = None,
    report: Callable[[str], object] = str,
) -> ServerProcess:
    """Start tritonserver on ``repository``; it is not ready yet.

    Args:
        repository: a Triton model repository.
        address: where the server listens.
        threads: compute threads of each process.
        control_key: what model control asks for; by default a new one, see :mod:`heptagram_backend.server.control_key`.
        reserved: further ports that must be free, by the flags that set them: for what is started later.
        variables: added to the environment of the server.
        report: told in a line what a killed server left behind and is removed now.

    Raises:
        LaunchError: something is missing or does not fit; the message says what to do.
    """
    models_of(repository)
    _check_paths(repository)
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
        restricted=Restricted(control_key) if control_key else Restricted(),
    )


def _check_paths(repository: Path) -> None:
    check_path("the model repository", repository.absolute())
    check_cache_path()
    check_import_path()


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


def _bound(host: str, port: int) -> socket.socket | None:
    """None where somebody else has the port."""
    each = socket.socket()
    try:
        each.bind((host, port))
    except OSError as error:
        each.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return each


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports that are free now, and that nobody gets by chance before a server has loaded its models.

    Raises:
        LaunchError: there are none.
    """
    with ExitStack() as stack:
        found: list[int] = []
        for port in random.SystemRandom().sample(_NEVER_BY_CHANCE, len(_NEVER_BY_CHANCE)):
            if each := _bound(host, port):
                stack.enter_context(each)
                found.append(port)
            if len(found) == count:
                return found
    raise LaunchError(f"{host}: no {count} free ports between {_NEVER_BY_CHANCE[0]} and {_NEVER_BY_CHANCE[-1]}")
