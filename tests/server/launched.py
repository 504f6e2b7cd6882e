"""``heptagram serve`` as a process of its own: what it says, and the processes below it by their model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from heptagram_backend.server.process import Address
from heptagram_client import Client
from tests.server.probe import Script
from tests.server.repository import write_probes

_SERVE = "import sys; from heptagram_backend.server.command import command; sys.exit(command(sys.argv[1:]))"


def write_launchable(folder: Path) -> Path:
    """The probe models, with a checkpoint that looks like one: the launcher checks it, the probes never read it."""
    repository, checkpoint = folder / "repository", folder / "checkpoint"
    write_probes(repository)
    checkpoint.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (checkpoint / name).touch()
    for path in repository.glob("*/1/release.yaml"):
        path.write_text(path.read_text().replace("checkpoint: none", f"checkpoint: {checkpoint}"))
    return repository


class Launched:
    """Start it with :func:`launched`."""

    def __init__(
        self, repository: Path, address: Address, openai_port: int, env: Mapping[str, str] | None = None
    ) -> None:
        ports = {"grpc": address.grpc_port, "http": address.http_port, "metrics": address.metrics_port}
        ports |= {"openai": openai_port}
        where = [part for name, port in ports.items() for part in (f"--{name}-port", str(port))]
        self.address = address
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, "--model-repository", str(repository), *where],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait_said(self, text: str, timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.said:
            assert self.process.poll() is None or self._reader.is_alive(), self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    @property
    def gateway(self) -> psutil.Process:
        [gateway] = [child for child in psutil.Process(self.process.pid).children() if "gateway" in child.cmdline()]
        return gateway

    @property
    def server(self) -> psutil.Process:
        [server] = [child for child in psutil.Process(self.process.pid).children() if child.name() == "tritonserver"]
        return server

    def stubs(self) -> dict[str, psutil.Process]:
        """The living stub of each model."""
        children = [child for child in self.server.children() if child.status() != psutil.STATUS_ZOMBIE]
        return {Path(child.cmdline()[1]).parts[-3]: child for child in children}

    def ask(self, script: Script, *, idle_timeout: float = 3.0) -> str:
        with Client(self.address.grpc_url, idle_timeout=idle_timeout) as client:
            return client.complete(json.loads(script.to_json())).content or ""

    def end(self, timeout_s: float = 20.0) -> int:
        """Two Ctrl-C: the second one kills."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.wait_said("stopping")
            time.sleep(0.5)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return status

    def discard(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def launched(
    repository: Path, address: Address, *, openai_port: int = 0, env: Mapping[str, str] | None = None
) -> Iterator[Launched]:
    """A launcher that has said that it is ready; with a gateway only where it is given a port."""
    launcher = Launched(repository, address, openai_port, env)
    try:
        launcher.wait_said("Ctrl-C stops")
        yield launcher
        launcher.end()
    finally:
        launcher.discard()
