"""Our client against the real server: an answered request leaves nothing behind in tritonserver itself."""

from __future__ import annotations

import asyncio

import pytest

from heptagram_client import AsyncClient, Client
from tests.server.served import Served

pytestmark = pytest.mark.server

SHORT = {"deltas": 2, "step_ms": 1}
# A cancel just behind the last response leaked one request of 3 to 20.
MANY = 40


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_an_ordinary_end_leaks_nothing(probes: Served, scheme: str) -> None:
    address = probes.process.address
    with Client(f"{scheme}://{address.grpc_url if scheme == 'grpc' else address.http_url}") as client:
        for _ in range(MANY):
            assert client.complete(SHORT).content == "0 1 "
    probes.reload()


def test_an_ordinary_end_leaks_nothing_with_asyncio(probes: Served) -> None:
    async def run() -> None:
        async with AsyncClient(probes.grpc_url) as client:
            for _ in range(MANY // 4):
                messages = await asyncio.gather(*(client.complete(SHORT) for _ in range(4)))
                assert [message.content for message in messages] == ["0 1 "] * 4

    asyncio.run(run())
    probes.reload()
