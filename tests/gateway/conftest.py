"""One front for all tests that need no configuration of their own; each gets it clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.samples import TEXT
from tests.gateway.front import Running, running
from tests.gateway.scripted import ScriptedServer, play


@pytest.fixture(scope="session")
def shared_front() -> Iterator[Running]:
    with running(play(TEXT)) as front:
        yield front


@pytest.fixture
def front(shared_front: Running) -> Iterator[Running]:
    shared_front.log.clear()
    shared_front.server.reset(play(TEXT))
    yield shared_front
    shared_front.at_rest()


@pytest.fixture
def server(front: Running) -> ScriptedServer:
    """What the front talks to; its ``script`` may be set."""
    return front.server
