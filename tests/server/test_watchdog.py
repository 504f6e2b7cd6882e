"""Processes are killed under four streams, on the real server: what is lost, what goes on, and how soon all is well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.launch import free_address
from heptagram_backend.server.segments import SHARED_MEMORY
from heptagram_client import HeptagramClientError
from heptagram_wire import tensors as names
from tests.server.launched import Launched, launched, write_launchable
from tests.server.probe import Script

pytestmark = pytest.mark.server

# Four seconds of text; a client that hears nothing for three gives up.
LONG = Script(deltas=100, step_ms=40)
WHOLE = "".join(f"{n} " for n in range(100))
SHORT = Script(deltas=3, step_ms=1)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with launched(write_launchable(tmp_path_factory.mktemp("watchdog")), free_address()) as launcher:
        yield launcher
        began = time.monotonic()
        assert launcher.end() == 0
        assert time.monotonic() - began < 10, "the second Ctrl-C did not kill"
        assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))


@contextmanager
def four_streams(launcher: Launched) -> Iterator[list[Future[str]]]:
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(launcher.ask, LONG) for _ in range(4)]
        time.sleep(1)
        yield streams


def recovered(launcher: Launched) -> str:
    """Ask until there is an answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(HeptagramClientError):
            return launcher.ask(SHORT, idle_timeout=1.0)
        time.sleep(0.05)
    raise AssertionError(launcher.said)


def kill(process: psutil.Process) -> float:
    process.kill()
    return time.monotonic()


@pytest.mark.parametrize("model", [names.PREPROCESS, names.GENERATE, names.RELAY])
def test_a_killed_stub_comes_back(serving: Launched, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = serving.stubs()
    with four_streams(serving) as streams:
        killed = kill(before[model])
        assert recovered(serving) == "0 1 2 "
        recovery = time.monotonic() - killed
        errors = [stream.exception() for stream in streams]
    with capsys.disabled():
        print(f"\n{model} killed: new requests are answered {recovery:.1f} s later")  # noqa: T201
    after = serving.stubs()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {model}
    serving.wait_said(f"{model} is ready again")
    if model == names.PREPROCESS:  # what was past it goes on
        assert [stream.result() for stream in streams] == [WHOLE] * 4
    else:  # Triton tells some of relay's that it is not healthy; whoever hears nothing gives up
        assert all(isinstance(error, HeptagramClientError) for error in errors)
    assert serving.ask(SHORT) == "0 1 2 "


def test_a_killed_tritonserver_is_reported_and_the_next_start_is_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, address = write_launchable(tmp_path), free_address()
    with launched(repository, address) as launcher:
        below = list(launcher.stubs().values())
        with four_streams(launcher) as streams:
            killed = kill(launcher.server)
            assert launcher.process.wait(20) == 1
            errors = [stream.exception() for stream in streams]
        assert all(isinstance(error, HeptagramClientError) for error in errors)
        launcher.end()
        assert "tritonserver ended with status -9" in launcher.said
        assert "log: " in launcher.said
        assert not psutil.wait_procs(below, timeout=5)[1]
        assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
    with launched(repository, address) as again:
        assert again.ask(SHORT) == "0 1 2 "
        recovery = time.monotonic() - killed
        assert "left behind" not in again.said
    with capsys.disabled():
        print(f"\ntritonserver killed: started again, requests are answered {recovery:.1f} s later")  # noqa: T201


def test_a_tritonserver_that_hangs_is_killed_and_reported(tmp_path: Path) -> None:
    with launched(write_launchable(tmp_path), free_address()) as launcher:
        below = [launcher.server, *launcher.stubs().values()]
        launcher.server.suspend()
        assert launcher.process.wait(60) == 1
        launcher.end()
        assert "tritonserver did not answer" in launcher.said
        assert not psutil.wait_procs(below, timeout=5)[1]


def test_a_server_that_outlived_its_launcher_is_ended_by_the_next_start(tmp_path: Path) -> None:
    repository, address = write_launchable(tmp_path), free_address()
    with launched(repository, address) as launcher:
        server = launcher.server
        server.suspend()  # it hangs: holds its ports, and does not hear that it should stop
        launcher.process.kill()
        launcher.process.wait()
    with launched(repository, address) as again:
        assert f"left behind: process {server.pid}" in again.said
        assert again.ask(SHORT) == "0 1 2 "
        # With nobody to reap it, as in a container, it stays a zombie.
        assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
