"""Every process of ``heptagram serve`` is killed under load through both fronts: how soon all is well, what is lost.

Requests of half a second come every 200 ms over gRPC and every 200 ms over OpenAI's API. *Lost* ones ran when the
process was killed; *refused* ones came after that and before all was well again, which is when the first answer began
behind which nothing failed. The table is printed at the end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.launch import free_address, free_ports
from heptagram_backend.server.process import Address
from heptagram_backend.server.segments import SHARED_MEMORY
from heptagram_wire import tensors as names
from tests.server.fronts import Load, over_grpc, over_openai
from tests.server.launched import Launched, launched, write_launchable
from tests.server.probe import Script

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

HALF_A_SECOND = Script(deltas=25, step_ms=20)
EVERY_S = 0.2
# The load goes on for so long after all is well.
PROOF_S = 3.0
FRONTS = ("gRPC", "OpenAI")


@dataclass(frozen=True, slots=True)
class Row:
    """How one front fared; seconds from the kill."""

    killed: str
    front: str
    requests: int
    lost: int
    refused: int
    recovery_s: float
    told_within_s: float

    @classmethod
    def of(cls, killed: str, front: str, moment: float, load: Load) -> Row:
        mine = [told for told in load.told if told.front == front]
        failed = [told for told in mine if told.fault is not None]
        last = max([moment, *(told.began for told in failed)])
        return cls(
            killed=killed,
            front=front,
            requests=len(mine),
            lost=sum(told.began <= moment for told in failed),
            refused=sum(told.began > moment for told in failed),
            recovery_s=min(told.ended for told in mine if told.began > last) - moment if failed else 0.0,
            told_within_s=max((told.ended - max(told.began, moment) for told in failed), default=0.0),
        )


def printed(rows: list[Row]) -> str:
    head = f"{'killed':<14}{'front':<8}{'requests':>9}{'lost':>6}{'refused':>9}{'well after':>12}{'told within':>13}"
    lines = [
        f"{row.killed:<14}{row.front:<8}{row.requests:>9}{row.lost:>6}{row.refused:>9}{row.recovery_s:>10.1f} s"
        f"{row.told_within_s:>11.1f} s"
        for row in rows
    ]
    return "\n".join([head, *lines])


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    made: list[Row] = []
    yield made
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{printed(made)}")  # noqa: T201


@dataclass(frozen=True, slots=True)
class Place:
    """A repository with addresses of its own, and a folder of its own for temporary files."""

    repository: Path
    address: Address
    openai_port: int
    temporary: Path

    @classmethod
    def make(cls, folder: Path) -> Place:
        (folder / "temporary").mkdir()
        return cls(write_launchable(folder), free_address(), free_ports(1)[0], folder / "temporary")

    def launched(self) -> AbstractContextManager[Launched]:
        environment = {"TMPDIR": str(self.temporary)}
        return launched(self.repository, self.address, openai_port=self.openai_port, env=environment)

    def load(self) -> Load:
        asks = (over_grpc(self.address.grpc_url), over_openai(self.openai_port))
        return Load(dict(zip(FRONTS, asks, strict=True)), HALF_A_SECOND, every_s=EVERY_S)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.make(tmp_path_factory.mktemp("kills"))


@pytest.fixture(scope="module")
def serving(place: Place) -> Iterator[Launched]:
    with place.launched() as launcher:
        yield launcher
        below = list(processes(launcher).values())
        began = time.monotonic()
        assert launcher.end() == 0
        assert time.monotonic() - began < 10, "the second Ctrl-C did not kill"
        assert_nothing_is_left(launcher, place, below)


def processes(launcher: Launched) -> dict[str, psutil.Process]:
    return launcher.stubs() | {"tritonserver": launcher.server, "gateway": launcher.gateway}


def assert_nothing_is_left(launcher: Launched, place: Place, below: list[psutil.Process]) -> None:
    assert not psutil.wait_procs(below, timeout=10)[1]
    assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
    assert not list(place.temporary.iterdir())
    ours = {place.address.grpc_port, place.address.http_port, place.address.metrics_port, place.openai_port}
    assert all(is_free(port) for port in ours)


def segments_are_private(launcher: Launched) -> bool:
    found = list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
    return len(found) > 2 and not any(path.stat().st_mode & 0o077 for path in found)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def under_load(load: Load, killed: psutil.Process, well: Callable[[], bool]) -> float:
    """Kill it, wait until ``well``, and go on for a while; when it was killed."""
    wait_for(lambda: load.answered_since(0))
    killed.kill()
    moment = time.monotonic()
    wait_for(well)
    wait_for(lambda: load.answered_since(moment))
    time.sleep(PROOF_S)
    return moment


def wait_for(reached: Callable[[], bool], timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "name", [pytest.param(names.PREPROCESS, marks=pytest.mark.full), names.GENERATE, names.RELAY, "gateway"]
)
def test_a_killed_process_comes_back_alone(serving: Launched, place: Place, rows: list[Row], name: str) -> None:
    before = processes(serving)
    said = "started again" if name == "gateway" else f"{name} is ready again"
    with place.load() as load:
        moment = under_load(load, before[name], lambda: said in serving.said)
    after = processes(serving)
    assert after.keys() == before.keys()
    assert {each for each in after if after[each] != before[each]} == {name}
    wait_for(lambda: segments_are_private(serving))
    told = {front: Row.of(name, front, moment, load) for front in FRONTS}
    rows += told.values()
    if name == "gateway":
        assert told["gRPC"].lost == told["gRPC"].refused == 0
        assert told["OpenAI"].lost > 0
    elif name == names.PREPROCESS:  # what was past it is not harmed
        assert all(row.lost <= 1 for row in told.values())
    for told_one in load.told:  # by its front or by the end of its connection, never by silence
        assert told_one.fault is None or told_one.ended - max(told_one.began, moment) < 45, told_one


def test_a_killed_tritonserver_is_started_again_by_a_supervisor(tmp_path: Path, rows: list[Row]) -> None:
    place = Place.make(tmp_path)
    with ExitStack() as stack:
        with place.launched() as first:
            below = list(processes(first).values())
            load = stack.enter_context(place.load())
            wait_for(lambda: load.answered_since(0))
            first.server.kill()
            moment = time.monotonic()
            assert first.process.wait(30) == 1
        assert "tritonserver ended with status -9" in first.said
        assert "log: " in first.said
        assert_nothing_is_left(first, place, below)
        with place.launched() as again:
            wait_for(lambda: load.answered_since(moment))
            time.sleep(PROOF_S)
            stack.close()
            assert "left behind" not in again.said
            below = list(processes(again).values())
        assert_nothing_is_left(again, place, below)
    rows += [Row.of("tritonserver", front, moment, load) for front in FRONTS]
