"""The real engine with too small a cache, under sixteen clients of all kinds: nothing is lost, grows or changes.

``HEPTAGRAM_SOAK_MINUTES`` says for how long (0.5; ``make soak`` takes 30), without the ends of the rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from heptagram_backend.server.repository import Overrides, project_repository, write_repository
from heptagram_client import Client
from heptagram_wire import tensors as names
from tests.server.pressure import ENGINE, Played, play_until, send, urls_of
from tests.server.served import Served
from tests.server.soaking import Growth, holdings, measured
from tests.server_fixture import running_server

_SECONDS = 60 * float(os.environ.get("HEPTAGRAM_SOAK_MINUTES", "0.5"))
_ROUNDS, _WARM_UP = (10, 3) if _SECONDS > 300 else (3, 1)
# A leaked matcher or response of each request would be more. Allocators settle late: the short form shows the rest.
_MOST_KIB_A_REQUEST, _SPARE_KIB = 1.0, 32768.0

pytestmark = [pytest.mark.server, pytest.mark.timeout(2 * _SECONDS + 600)]


@pytest.fixture
def small() -> Iterator[Served]:
    repository = write_repository(project_repository(), Overrides(engine=ENGINE))
    with running_server(repository) as process:
        yield Served(process)
        process.stop()


def test_nothing_is_lost_grows_or_changes(small: Served, capsys: pytest.CaptureFixture[str]) -> None:
    played, requests, samples = Played(), [], []
    for number in range(_ROUNDS):
        play_until(time.monotonic() + _SECONDS / _ROUNDS, small.process.address, number, played)
        at_rest = small.settle(60)
        assert at_rest["kv_blocks_used"] == 0
        requests.append(played.counts.total())
        samples.append(holdings(small.process))
    growth = measured(requests[_WARM_UP:], [held for held, _ in samples[_WARM_UP:]])
    shared = [used for _, used in samples[_WARM_UP:]]
    told = [f"{dict(played.counts)}, {at_rest['num_preemptions_total']:.0f} preemptions", *map(str, growth)]
    with capsys.disabled():
        print("", *told, f"shared memory {shared[0] / 2**20:.1f} -> {shared[-1] / 2**20:.1f} MiB", sep="\n")  # noqa: T201
    assert at_rest["num_preemptions_total"] > 0
    assert at_rest["invalid_outputs_total"] == at_rest["requests_failed_total"] == 0
    for process in growth:
        check(process, requests[-1] - requests[_WARM_UP])
    assert shared[-1] <= shared[0]
    with Client(urls_of(small.process.address)[0], idle_timeout=120) as alone:
        for ask, answers in played.answers.items():
            assert answers == {send(alone, ask)}, ask
    small.reload(names.GENERATE)


def check(process: Growth, requests: int) -> None:
    assert process.last.threads <= process.first.threads + 2, process  # a pool may start its last thread late
    assert not process.opened, process
    assert process.slope * requests < _MOST_KIB_A_REQUEST * requests + _SPARE_KIB, process
