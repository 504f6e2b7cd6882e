"""Real servers, each started once: the shipped repository, the one of a tiny DeepSeek V4, and the shipped glue around
the scripted engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heptagram_backend.checkpoint import resolve
from heptagram_backend.release import Release
from heptagram_backend.server.model import values_for
from heptagram_backend.server.repository import Overrides, project_repository, write_repository
from heptagram_wire import tensors as names
from tests.server.repository import SHIPPED, write_probes
from tests.server.served import Served
from tests.server_fixture import running_server

# A leaked request makes it the whole exit timeout of 30 s.
_STOPS_WITHIN_S = 20.0


@contextmanager
def _served(repository: Path) -> Iterator[Served]:
    with running_server(repository) as process:
        yield Served(process)
        began = time.monotonic()
        process.stop()
        assert time.monotonic() - began < _STOPS_WITHIN_S, "the server waited for a request that never ends"
    assert not list(repository.rglob("__pycache__"))


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with _served(write_probes(tmp_path_factory.mktemp("probes") / "repository")) as served:
        yield served


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with _served(write_probes(tmp_path_factory.mktemp("counted") / "repository", "Counted")) as served:
        yield served


@pytest.fixture(scope="session")
def shipped() -> Iterator[Served]:
    resolve(Release.load(SHIPPED / names.GENERATE / "1").checkpoint)
    with _served(SHIPPED) as served:
        yield served


@pytest.fixture(scope="session")
def deepseek() -> Iterator[Served]:
    model = "embedded:tiny-deepseek-v4"
    with _served(write_repository(project_repository(), values_for(model, resolve(model), Overrides()))) as served:
        yield served
