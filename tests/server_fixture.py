"""A real tritonserver for tests that are marked ``server``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from heptagram_backend.server.launch import free_address, launch, models_of
from heptagram_backend.server.process import ServerProcess


@contextmanager
def running_server(
    model_repository: Path, *, env: Mapping[str, str] | None = None, ready: Sequence[str] | None = None
) -> Iterator[ServerProcess]:
    """Serve ``model_repository`` on free ports until the block ends.

    Yields a process with ``address.grpc_url`` and ``address.http_url`` (``host:port``), ``address.metrics_url``,
    ``log`` (a path), ``pid`` and ``stop()``, once every model of the repository (or those in ``ready``) is ready.
    """
    with launch(model_repository, free_address(), variables=env) as server:
        server.wait_ready(ready or models_of(model_repository), timeout_s=300)
        yield server
