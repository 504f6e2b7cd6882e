"""Versions of a running server: added, tried, promoted under load, refused, rolled back, drained. The real models."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.checkpoint import resolve
from heptagram_backend.rollout.command import EXIT_FAILED, EXIT_OK, command
from heptagram_backend.server.control import ModelControl
from heptagram_client import Client
from heptagram_wire.events import Finish, Start
from tests.server.served import Served
from tests.server_fixture import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

OLD, NEW = "smollm2-135m-instruct", "tiny-deepseek-v4"
SMALL = json.dumps({"max_model_len": 1024, "max_num_seqs": 4})
STREAMS = 8
ROOMY = json.dumps({"max_num_seqs": STREAMS + 2})
LONG = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 300, "ignore_eos": True}
OTHER = "sha256:" + "0" * 64
SHORT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
Repo = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rollout") / "repository"
    made = ["init", "--model-repository", str(path), "--model", f"embedded:{OLD}", "--engine", ROOMY]
    assert command(made) == EXIT_OK
    return path


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that was copied half."""
    path = tmp_path_factory.mktemp("broken") / "half"
    shutil.copytree(resolve(f"embedded:{NEW}"), path)
    weights = path / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    return path


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with running_server(root) as process:
        yield Served(process)


@pytest.fixture
def repo(served: Served, root: Path, capfd: pytest.CaptureFixture[str]) -> Repo:
    """Runs ``heptagram repo``; its exit code, and its outcome as JSON."""
    address = served.process.address
    where = ["--model-repository", str(root), "--http-port", str(address.http_port)]
    where += ["--metrics-port", str(address.metrics_port), "--json"]

    def run(name: str, *arguments: object) -> tuple[int, Any]:
        capfd.readouterr()
        code = command([name, *map(str, arguments), *where])
        return code, json.loads(capfd.readouterr().out)

    return run


def answered_by(served: Served) -> str:
    """The model that ``chat`` answers with now."""
    with Client(served.grpc_url) as client:
        start = next(event for event in client.stream(SHORT) if isinstance(event, Start))
        return start.model


class Load:
    """Clients that ask and ask again until the block ends; which models answered, and what failed."""

    def __init__(self, served: Served, clients: int = 2) -> None:
        self.models: list[str] = []
        self.failed: list[object] = []
        self._served = served
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(clients)
        self._clients = clients

    def _ask(self) -> None:
        with Client(self._served.grpc_url) as client:
            while not self._over.is_set():
                try:
                    events = list(client.stream(SHORT))
                except Exception as error:
                    self.failed.append(error)
                    continue
                self.models += [event.model for event in events if isinstance(event, Start)]
                if not isinstance(events[-1], Finish):
                    self.failed.append(events[-1])

    def __enter__(self) -> Load:
        self._running = [self._pool.submit(self._ask) for _ in range(self._clients)]
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        for each in self._running:
            each.result(timeout=60)
        self._pool.shutdown()


def test_a_version_is_added_promoted_drained_and_rolled_back_under_load(served: Served, repo: Repo) -> None:
    with Client(served.grpc_url) as client, ThreadPoolExecutor(STREAMS) as pool:
        first = [client.stream(LONG) for _ in range(STREAMS - 1)]
        streams = [pool.submit(list, stream) for stream in first]
        doomed = client.stream(LONG | {"max_tokens": 2000})
        reading = iter(doomed)  # held: a stream whose iterator is dropped is cancelled
        assert isinstance(next(reading), Start)
        assert repo("add", "--model", f"embedded:{NEW}", "--engine", SMALL) == (EXIT_OK, {"version": 2})
        assert answered_by(served) == OLD
        assert repo("canary", 2)[0] == EXIT_OK
        with Load(served) as load:
            assert repo("promote", 2) == (EXIT_OK, {"current": 2})
            assert answered_by(served) == NEW
            assert repo("drain", 1)[0] == EXIT_OK
            status = repo("status")[1]
            assert [each["state"] for each in status["versions"]] == ["UNLOADING", "READY"]
            assert status["versions"][0]["in_flight"] >= 1
            cancelled = cancellations(served)
            began = time.monotonic()
            doomed.close()  # cancelled while its version drains
            wait_for(lambda: cancellations(served) > cancelled, timeout_s=20)  # 2000 tokens would take minutes
            for stream in streams:
                events = stream.result(timeout=300)
                assert isinstance(events[-1], Finish)
                assert events[-1].usage.completion_tokens == LONG["max_tokens"]
            wait_for(lambda: repo("status")[1]["versions"][0]["state"] == "UNAVAILABLE")
            drained_s = time.monotonic() - began
            assert repo("rollback") == (EXIT_OK, {"current": 1})
            assert answered_by(served) == OLD
        assert load.failed == []
        assert {OLD, NEW} <= set(load.models)
        assert drained_s < 300
    assert repo("drain", 2)[0] == EXIT_OK
    assert repo("gc") == (EXIT_OK, {"deleted": [2]})


def cancellations(served: Served) -> float:
    return served.metrics().get("requests_cancelled_total", 0.0)


def wait_for(reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--release", '{"vocabulary": "sha256:0"}'], "vocabulary: the release was written for sha256:0"),
        (["--release", '{"k7_layout": ["token_ids int32 [B,R] input device"]}'], "token_ids int32"),
        (["--release", '{"checkpoint": "/nowhere"}'], "checkpoint /nowhere: no such folder"),
        (["--release", f'{{"checkpoint_hash": "{OTHER}"}}'], f"checkpoint: the release was written for {OTHER}, but "),
        (["--release", '{"vocabulary_width": 49153}'], "written for 49153, but the logits are 49152 wide"),
        (["--release", '{"versions": {"torch": "1.13.1"}}'], "written beside 1.13.1, installed is "),
        (["--format", "deepseek_v4", "--model"], "its weights cannot be loaded"),  # the broken one
    ],
)
def test_a_version_that_does_not_fit_is_refused_and_nobody_notices(
    served: Served, repo: Repo, broken: Path, flags: list[str], reason: str
) -> None:
    with Load(served, clients=1) as load:
        code, outcome = repo("add", *flags, *([broken] if flags[-1] == "--model" else []))
    assert code == EXIT_FAILED
    assert reason in outcome["error"]
    assert load.failed == []
    assert [each["version"] for each in repo("status")[1]["versions"]] == [1]
    assert answered_by(served) == OLD


def test_what_was_promoted_stays_so_after_the_load_that_a_watchdog_does(served: Served, repo: Repo) -> None:
    code, outcome = repo("add", "--served-model-name", "again")
    assert code == EXIT_OK
    version = outcome["version"]
    assert repo("promote", version)[0] == EXIT_OK
    control = ModelControl(served.process.address)
    control.unload("preprocess")
    control.load("preprocess")
    wait_for(lambda: control.ready_versions("chat") == {str(version)})
    assert answered_by(served) == "again"
