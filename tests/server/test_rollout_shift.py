"""A gradual shift on the real server: shares through the gateway, conversations that stay, cuts, all under load."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from heptagram_backend.rollout import command as repo_command
from heptagram_backend.rollout.command import EXIT_OK, command
from heptagram_client import Client
from heptagram_wire.events import Start
from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served
from tests.server.test_rollout import SHORT, Repo, wait_for
from tests.server_fixture import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

MODEL = "embedded:tiny-deepseek-v4"
SMALL = json.dumps({"max_model_len": 1024})
OLD, NEW = "old@1", "new@2"
CONVERSATIONS = 100


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shift") / "repository"
    made = ["init", "--model-repository", str(path), "--model", MODEL, "--engine", SMALL, "--served-model-name", "old"]
    assert command(made) == EXIT_OK
    return path


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with running_server(root) as process:
        yield Served(process)


@pytest.fixture(scope="module")
def gateway(served: Served) -> Iterator[Gateway]:
    with running_gateway(served.grpc_url) as gateway:
        yield gateway


@pytest.fixture
def asking(gateway: Gateway) -> Iterator[Asking]:
    with Asking(gateway) as asking:
        yield asking


@pytest.fixture
def repo(served: Served, root: Path, capfd: pytest.CaptureFixture[str]) -> Repo:
    address = served.process.address
    where = ["--model-repository", str(root), "--http-port", str(address.http_port)]
    where += ["--metrics-port", str(address.metrics_port), "--json"]

    def run(name: str, *arguments: object) -> tuple[int, Any]:
        capfd.readouterr()
        code = command([name, *map(str, arguments), *where])
        return code, json.loads(capfd.readouterr().out)

    return run


class Asking:
    """Conversations through the gateway, each of two requests; which versions answered, and what failed."""

    def __init__(self, gateway: Gateway) -> None:
        self.failed: list[object] = []
        self._client = httpx2.Client(base_url=gateway.url, timeout=60)
        self._over = threading.Event()

    def answered_by(self, conversation: int, turn: int = 0) -> str:
        messages = [{"role": "user", "content": f"Conversation {conversation}"}]
        messages += [{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go on."}] * turn
        try:
            answer = self._client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
        except httpx2.HTTPError as error:
            self.failed.append(error)
            return ""
        if answer.status_code != 200:
            self.failed.append(answer.text)
            return ""
        return str(answer.json()["system_fingerprint"])

    def both(self, conversation: int) -> tuple[str, str]:
        return self.answered_by(conversation), self.answered_by(conversation, 1)

    def until_over(self) -> None:
        conversation = 0
        while not self._over.is_set():
            conversation += 1
            self.answered_by(conversation)

    def end(self) -> None:
        self._over.set()

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *unused: object) -> None:
        self._client.close()

    def shares(self) -> Any:
        return self._client.get("/v1/models/chat").json().get("shares")


def test_a_version_gets_its_share_and_conversations_stay(served: Served, asking: Asking, repo: Repo) -> None:
    assert repo("add", "--served-model-name", "new") == (EXIT_OK, {"version": 2})
    assert {asking.answered_by(n) for n in range(8)} == {OLD}

    assert repo("shift", 2, "--weight", 25) == (EXIT_OK, {"traffic": {"1": 75, "2": 25}})
    wait_for(lambda: asking.shares() == {"1": 75, "2": 25})
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(asking.both, range(CONVERSATIONS)))
    assert all(first == later for first, later in answers)
    counts = Counter(first for first, _ in answers)
    assert counts.keys() == {OLD, NEW}
    assert 15 <= counts[NEW] <= 35
    status = repo("status")[1]["versions"]
    assert [version["weight"] for version in status] == [75, 25]
    assert status[1]["ended"] >= 2 * counts[NEW]

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(asking.until_over) for _ in range(2)]
        assert repo("shift", 2, "--weight", 100) == (EXIT_OK, {"traffic": {"1": 0, "2": 100}})
        wait_for(lambda: asking.shares() == {"1": 0, "2": 100})
        assert {asking.answered_by(n) for n in range(8)} == {NEW}
        assert asked_directly(served) == "old"  # nobody but the gateway shares
        assert repo("promote", 2) == (EXIT_OK, {"current": 2})
        assert repo("drain", 1)[0] == EXIT_OK  # at once: the gateway may not know yet
        assert asked_directly(served) == "new"
        wait_for(lambda: asking.shares() is None)
        assert {asking.answered_by(n) for n in range(8)} == {NEW}
        assert repo("shift", 1, "--weight", 50)[0] == EXIT_OK  # loads it again
        wait_for(lambda: asking.shares() == {"1": 50, "2": 50})
        assert {asking.answered_by(n) for n in range(16)} == {OLD, NEW}
        assert repo("rollback") == (EXIT_OK, {"current": 2})
        wait_for(lambda: asking.shares() is None)
        asking.end()
        for each in running:
            each.result(timeout=60)
    assert asking.failed == []


def asked_directly(served: Served) -> str:
    with Client(served.grpc_url) as client:
        return next(event.model for event in client.stream(SHORT) if isinstance(event, Start))


class Killed(BaseException):
    pass


def cut_before(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The next command is killed before its ``step``-th step."""
    reporter = repo_command._reporter

    def counting(values: Any) -> Callable[[str], object]:
        told: list[str] = []

        def report(text: str) -> object:
            told.append(text)
            if len(told) == step:
                raise Killed
            return reporter(values)(text)

        return report

    monkeypatch.setattr(repo_command, "_reporter", counting)


def test_a_command_that_is_killed_at_any_step_is_explained_and_ended(
    served: Served, asking: Asking, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asking.until_over)
        for name, arguments, steps in (("shift", (1, "--weight", 30), 5), ("promote", (1,), 5)):
            began = False
            for step in range(1, steps + 1):
                with monkeypatch.context() as patch:
                    cut_before(patch, step)
                    with pytest.raises(Killed):
                        repo(name, *arguments)
                pending = repo("status")[1]["pending"]
                began = began or pending is not None
                assert pending is None or f"`{name}` of version 1" in pending
                code, outcome = repo("rollback", "--to", 2)  # ends it, and then goes back
                assert (code, outcome) == (EXIT_OK, {"current": 2})
                status = repo("status")[1]
                assert (status["pending"], status["current"]) == (None, 2)
                assert [version["weight"] for version in status["versions"]] == [0, 100]
            assert began
        assert asked_directly(served) == "new"
        asking.end()
        running.result(timeout=60)
    assert asking.failed == []
