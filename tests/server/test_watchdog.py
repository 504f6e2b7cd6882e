"""Servers that hang, outlive their launcher, or cannot start; `test_kills.py` has the processes that are killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.launch import free_address
from heptagram_backend.server.segments import SHARED_MEMORY
from tests.launcher.echo import write_echo
from tests.server.launched import Launched, launched, write_launchable
from tests.server.probe import Script

pytestmark = pytest.mark.server

SHORT = Script(deltas=3, step_ms=1)


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


def test_a_process_that_dies_before_triton_knows_it_ends_the_start(tmp_path: Path) -> None:
    """As with a missing library: Triton waits for its first word for ever. A model may bring a stub of its own."""
    repository = write_echo(tmp_path)
    shutil.copy2(shutil.which("false") or "", repository / "echo" / "triton_python_backend_stub")
    launcher = Launched(repository, free_address(), openai_port=0)
    try:
        assert launcher.process.wait(60) == 1
        launcher.end()
        assert "died while it was loading, and Triton waits for it for ever" in launcher.said
        assert "echo" in launcher.said
        assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
    finally:
        launcher.discard()
