"""The launcher and the real tritonserver."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import check_ports
from heptagram_backend.server.launch import free_address, launch
from heptagram_backend.server.log import status_of
from heptagram_backend.server.process import ServerProcess
from heptagram_backend.server.segments import SHARED_MEMORY
from tests.launcher.echo import write_echo
from tests.server_fixture import running_server

pytestmark = pytest.mark.server


def ask(server: ServerProcess, text: str) -> Any:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"http://{server.address.http_url}/v2/models/echo/generate", body)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(json.load(response)["out"])


def segments() -> set[str]:
    """Those of servers that this process started; another's may come and go meanwhile."""
    return {path.name for path in SHARED_MEMORY.glob(f"heptagram-{os.getpid()}-*")}


def test_serves_from_our_interpreter_and_leaves_nothing(tmp_path: Path) -> None:
    repository = write_echo(tmp_path / "repository")
    before = segments()
    with running_server(repository, env={"OMP_NUM_THREADS": "7"}) as server:
        answer = ask(server, "grüße")
        assert answer["text"] == "grüße"
        assert answer["threads"] == "1"
        stub = psutil.Process(answer["pid"])
        assert stub.parent() == psutil.Process(server.pid)
        assert Path(answer["executable"]).name == "python3"
        assert segments() > before
        with urllib.request.urlopen(server.address.metrics_url, timeout=10) as response:
            assert b"nv_inference_count" in response.read()
        assert "warming up echo" in [status_of(line) for line in server.log.read_text().splitlines()]
    assert not stub.is_running()
    assert server.poll() == 0
    assert segments() == before
    assert not list(repository.rglob("__pycache__"))
    server.stop()


def test_a_failed_load_says_why(tmp_path: Path) -> None:
    repository = write_echo(tmp_path, model='raise ValueError("the reason is here")')
    with launch(repository, free_address()) as server, pytest.raises(LaunchError, match="the reason is here"):
        server.wait_ready(["echo"], timeout_s=60)


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with running_server(write_echo(tmp_path)) as server:
        for flag, port in (("--grpc-port", server.address.grpc_port), ("--http-port", server.address.http_port)):
            with pytest.raises(LaunchError, match=f"port {port} .* pass another {flag}"):
                check_ports("127.0.0.1", {flag: port})
