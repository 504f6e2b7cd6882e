"""``heptagram serve`` with its gateway: what it says, what comes back, what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from heptagram_backend.server.launch import free_address, free_ports
from tests.children import child
from tests.server.launched import Launched, launched, write_launchable
from tests.server.repository import SHIPPED

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]

LONG = {"model": "chat", "messages": [{"role": "user", "content": "Count."}], "ignore_eos": True, "stream": True}


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return json.load(response)


def answers(port: int) -> bool:
    try:
        return bool(get(port, "/health/ready"))
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(*processes: psutil.Process) -> bool:
    return not psutil.wait_procs(processes, timeout=20)[1]


def begin_stream(port: int, max_tokens: int) -> socket.socket:
    """Ask for a stream and wait for its first chunk."""
    body = json.dumps({**LONG, "max_tokens": max_tokens}).encode()
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    received = client.recv(65_536)
    while b'"content"' not in received:
        received += client.recv(65_536)
    return client


def rest_of(client: socket.socket) -> bytes:
    received = b""
    while piece := client.recv(65_536):
        received += piece
    return received


def test_a_life_with_the_shipped_models() -> None:
    """Serve, try what is printed, lose the gateway, stop while a stream runs: it comes to its end first."""
    [port] = free_ports(1)
    with launched(SHIPPED, free_address(), openai_port=port) as launcher:
        assert f"OpenAI http://127.0.0.1:{port}/v1" in launcher.said
        assert get(port, "/v1/models")["data"][0]["id"] == "SmolLM2-135M-Instruct"
        try_what_is_printed(launcher)
        lose_the_gateway(launcher, port)
        below = [launcher.gateway, launcher.server, *launcher.stubs().values()]
        stream = begin_stream(port, max_tokens=64)
        launcher.process.send_signal(signal.SIGTERM)
        with stream:
            assert b'"finish_reason":"length"' in rest_of(stream)
        assert launcher.process.wait(60) == 0
        assert gone(*below)


def try_what_is_printed(launcher: Launched) -> None:
    [line] = re.findall(r"^  (curl -s http\S+/v1/chat/completions .*)$", launcher.said, re.MULTILINE)
    ran = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(ran.stdout)["choices"][0]["message"]["content"]


def lose_the_gateway(launcher: Launched, port: int) -> None:
    lost = launcher.gateway
    lost.kill()
    launcher.wait_said("the gateway ended with status -9, its requests are lost; it is started again now")
    wait_for(lambda: answers(port))
    assert launcher.gateway != lost
    assert launcher.said.count("the gateway ended") == 1


def test_a_second_signal_ends_it_now() -> None:
    [port] = free_ports(1)
    with launched(SHIPPED, free_address(), openai_port=port) as launcher:
        below = [launcher.gateway, launcher.server, *launcher.stubs().values()]
        with begin_stream(port, max_tokens=2000) as stream:
            launcher.process.send_signal(signal.SIGINT)
            launcher.wait_said("stopping")
            with pytest.raises(urllib.error.HTTPError, match="503"):
                get(port, "/health/ready")
            launcher.process.send_signal(signal.SIGINT)
            assert launcher.process.wait(25) == 0  # less than a drain
            assert b'"finish_reason":"' not in rest_of(stream)
        assert gone(*below)


def test_a_killed_launcher_takes_the_gateway_along(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with launched(write_launchable(tmp_path), free_address(), openai_port=port) as launcher:
        below = [launcher.gateway, launcher.server]
        launcher.gateway.suspend()  # even one that hears nothing
        launcher.process.kill()
        assert gone(*below)


def test_a_terminals_interrupt_reaches_the_launcher_only(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with launched(write_launchable(tmp_path), free_address(), openai_port=port) as launcher:
        assert os.getsid(launcher.gateway.pid) == launcher.gateway.pid
        assert os.getsid(launcher.gateway.pid) != os.getsid(launcher.process.pid)
        assert launcher.gateway.cmdline()[-1] == "--served-model-name=probe"


def where() -> list[str]:
    address = free_address()
    ports = {"grpc": address.grpc_port, "http": address.http_port, "metrics": address.metrics_port}
    return [f"--{name}-port={port}" for name, port in ports.items()]


def serve(repository: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [sys.executable, "-m", "heptagram_client.main", "serve", f"--model-repository={repository}"]
    return subprocess.run([*command, *where(), *flags], capture_output=True, text=True, timeout=250, check=False)


def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ran = serve(write_launchable(tmp_path), f"--openai-port={port}")
    assert ran.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be used" in ran.stderr
    assert "pass another --openai-port" in ran.stderr
    assert "loading models" not in ran.stderr


def test_a_gateway_that_cannot_start_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEPTAGRAM_API_KEY", " ")
    ran = serve(write_launchable(tmp_path), f"--openai-port={free_ports(1)[0]}")
    assert ran.returncode == 1
    assert "heptagram serve: the gateway ended with status 2" in ran.stderr
    assert "an API key was asked for, but it is empty" in ran.stderr


def test_an_access_log_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    access_log = tmp_path / "missing" / "requests.jsonl"
    ran = serve(write_launchable(tmp_path), f"--openai-port={free_ports(1)[0]}", f"--openai-access-log={access_log}")
    assert ran.returncode == 1
    assert "heptagram gateway: No such file or directory" in ran.stderr


_WITHOUT = """
import sys, importlib.metadata as metadata
known = metadata.version
def version(name):
    if name == "starlette":
        raise metadata.PackageNotFoundError(name)
    return known(name)
metadata.version = version
from heptagram_backend.server.command import command
sys.exit(command(sys.argv[1:]))
"""


def test_without_the_extra_it_says_so_and_serves(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT, f"--model-repository={write_launchable(tmp_path)}", *where()]
    command.append(f"--openai-port={free_ports(1)[0]}")
    with child(command) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C stops" in line:
                process.terminate()
        assert process.wait(60) == 0
    assert "no OpenAI API: starlette is not installed; pip install 'heptagram[gateway]'" in said
    assert "OpenAI http" not in said


def test_the_demo_is_valid_over_all_fronts(tmp_path: Path) -> None:
    access_log = tmp_path / "requests.jsonl"
    ran = serve(SHIPPED, f"--openai-port={free_ports(1)[0]}", f"--openai-access-log={access_log}", "--demo")
    assert ran.returncode == 0, ran.stderr
    asked = [json.loads(line) for line in access_log.read_text().splitlines()]
    assert [line["status"] for line in asked if line["endpoint"] == "chat"] == [200]
    lines = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["grpc", "http", "openai"]
    assert all(re.fullmatch(r'\w+: shell \{"command": ".*"\} valid', line) for line in lines)
    assert len({line.partition(":")[2] for line in lines}) == 1
