"""``heptagram serve`` as a process: signals, what is left behind, and what is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.launch import free_address
from heptagram_backend.server.process import is_ready
from heptagram_backend.server.segments import SHARED_MEMORY, remove_abandoned_segments
from tests.children import child
from tests.launcher.echo import write_echo

pytestmark = pytest.mark.server


@contextmanager
def serve(*flags: str, ignoring: Sequence[signal.Signals] = ()) -> Iterator[subprocess.Popen[str]]:
    """``heptagram serve`` on free ports, killed at the end of the block."""
    address = free_address()
    ports = {"--grpc-port": address.grpc_port, "--http-port": address.http_port, "--metrics-port": address.metrics_port}
    where = [part for flag, port in ports.items() for part in (flag, str(port))]
    script = "import sys; from heptagram_backend.server.command import command; sys.exit(command(sys.argv[1:]))"
    with child([sys.executable, "-c", script, *where, *flags], ignoring=ignoring) as launcher:
        yield launcher


@contextmanager
def serving(
    *flags: str, ignoring: Sequence[signal.Signals] = ()
) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process], str]]:
    """A launcher that has said it is ready, the processes below it, and what it said."""
    with serve(*flags, ignoring=ignoring) as launcher:
        said = ""
        assert launcher.stdout is not None
        for line in launcher.stdout:
            said += line
            if "stops the server." in line:
                break
        yield launcher, psutil.Process(launcher.pid).children(recursive=True), said


def echo(folder: Path, *, model: str | None = None) -> tuple[str, str]:
    return "--model-repository", str(write_echo(folder, model=model))


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=20)[1]


def segments_of(launcher: subprocess.Popen[str]) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"heptagram-{launcher.pid}-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    with serving(*echo(tmp_path)) as (launcher, below, said):
        assert [Path(process.exe()).name for process in below] == ["tritonserver", "triton_python_backend_stub"]
        assert segments_of(launcher)
        assert "gRPC 127.0.0.1:" in said
        assert "curl" not in said  # the request to try is for the model `chat`
        assert "\nCtrl-C stops the server." in said
        os.kill(launcher.pid, number)
        assert launcher.wait(20) == 0
        assert gone(below)
        assert not segments_of(launcher)


def test_a_job_in_the_background_hears_no_terminal(tmp_path: Path) -> None:
    terminals = (signal.SIGINT, signal.SIGHUP)
    with serving(*echo(tmp_path), ignoring=terminals) as (launcher, below, said):
        assert f"\nkill {launcher.pid} stops the server." in said
        for number in terminals:
            launcher.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(1)
        launcher.terminate()
        assert launcher.wait(20) == 0
        assert gone(below)


def test_a_killed_launcher_takes_the_server_along(tmp_path: Path) -> None:
    with serving(*echo(tmp_path)) as (launcher, below, _):
        launcher.kill()
        launcher.wait()
        assert gone(below)
        remove_abandoned_segments()  # only the lock is left
        assert not segments_of(launcher)


def test_all_killed_at_once_is_cleared_by_the_next_start(tmp_path: Path) -> None:
    with serving(*echo(tmp_path)) as (launcher, below, _):
        for process in (*below, psutil.Process(launcher.pid)):
            process.kill()
        launcher.wait()
        assert gone(below)
        assert segments_of(launcher)
        remove_abandoned_segments()
        assert not segments_of(launcher)


def test_a_server_that_dies_is_reported(tmp_path: Path) -> None:
    with serving(*echo(tmp_path)) as (launcher, below, _):
        below[0].kill()
        said, _ = launcher.communicate(timeout=20)
        assert launcher.returncode == 1
        assert "tritonserver ended with status -9" in said
        assert gone(below)
        assert not segments_of(launcher)


def test_interrupted_while_it_loads(tmp_path: Path) -> None:
    with serve(*echo(tmp_path, model="import time; time.sleep(60)")) as launcher:
        deadline = time.monotonic() + 20
        below: list[psutil.Process] = []
        while len(below) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            below = psutil.Process(launcher.pid).children(recursive=True)
        launcher.send_signal(signal.SIGINT)
        time.sleep(1)
        launcher.send_signal(signal.SIGINT)  # a model that loads for ever holds up an ordered stop
        said, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 130
    assert "Traceback" not in said
    assert gone(below)
    assert not segments_of(launcher)


def test_a_failed_start_prints_the_reason(tmp_path: Path) -> None:
    model = 'raise ValueError("the reason is here")'
    with serve(*echo(tmp_path, model=model), "--openai-port", "9000") as launcher:
        said, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "the reason is here" in said
    assert "log: " in said
    assert "no OpenAI API: the repository has no model 'chat'" in said


def test_nothing_answers_on_a_free_address() -> None:
    assert not is_ready(free_address(), "echo")
