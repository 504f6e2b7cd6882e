"""A stub that is killed after a promotion comes back as what was promoted, shares and all: ``heptagram serve`` has it
loaded again by the files.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from heptagram_backend.rollout.command import EXIT_OK, command
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.server.launch import free_address
from heptagram_client import Client, HeptagramClientError
from heptagram_wire import tensors as names
from heptagram_wire.events import Start
from tests.server.launched import Launched, launched

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

ASKED = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


def answered_by(launcher: Launched, model: str = names.CHAT) -> tuple[str, str]:
    """Ask until there is an answer; the name and version of who gave it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        client = Client(launcher.address.grpc_url, model=model, idle_timeout=5.0)
        with suppress(HeptagramClientError), client:
            start = next(event for event in client.stream(ASKED) if isinstance(event, Start))
            return start.model, start.version
    raise AssertionError(launcher.said)


@pytest.mark.parametrize("model", [names.GENERATE, pytest.param(names.PREPROCESS, marks=pytest.mark.full)])
def test_a_killed_stub_comes_back_promoted(tmp_path: Path, model: str) -> None:
    root = tmp_path / "repository"
    made = ["--model-repository", str(root), "--engine", json.dumps({"max_model_len": 1024})]
    assert command(["init", *made, "--model", "embedded:tiny-deepseek-v4", "--served-model-name", "old"]) == EXIT_OK
    address = free_address()
    where = ["--model-repository", str(root), "--http-port", str(address.http_port)]
    where += ["--metrics-port", str(address.metrics_port)]
    with launched(root, address) as launcher:
        assert command(["add", *where, "--served-model-name", "new"]) == EXIT_OK
        assert command(["promote", "2", *where]) == EXIT_OK
        assert command(["shift", "1", "--weight", "10", *where]) == EXIT_OK
        assert answered_by(launcher) == ("new", "2")
        [stub] = [
            child
            for child in launcher.server.children()
            if child.is_running() and child.cmdline() and Path(child.cmdline()[1]).parts[-3:-1] == (model, "2")
        ]
        stub.kill()
        launcher.wait_said(f"{model} is ready again", timeout_s=200)
        assert answered_by(launcher) == ("new", "2")
        assert answered_by(launcher, names.pinned(names.CHAT, 1)) == ("old", "1")
        assert command(["status", *where]) == EXIT_OK
    files = RolloutFiles(root)
    assert (files.current(), files.served(), files.shares()) == (2, [1, 2], {1: 10, 2: 90})
