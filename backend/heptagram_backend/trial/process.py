"""One child process from its start to its end, as its parent holds it."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import EngineError
from heptagram_backend.trial.setup import OUT_OF_MEMORY, Setup

_PROGRAM: Final = "heptagram_backend.trial.child"
_START_SECONDS: Final = 120.0  # a cold disk and a busy machine


class ChildEndedError(Exception):
    """The child is gone. ``status`` is as in :class:`subprocess.Popen`, ``None`` where it was stopped for the time."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"status {status}")
        self.status = status

    @property
    def out_of_memory(self) -> bool:
        """It could not get memory, or the system took it back."""
        return self.status in (OUT_OF_MEMORY, -signal.SIGABRT, -signal.SIGKILL)

    @property
    def out_of_time(self) -> bool:
        return self.status == -signal.SIGPROF


class Child:
    """Started at once; it is ready when it has answered to :meth:`begin`."""

    def __init__(self) -> None:
        command = [_interpreter(), "-P", "-m", _PROGRAM]
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._begun = False
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, setup: Setup) -> None:
        """Tell it what it needs to get ready, and do not wait for that. A child that has ended is found later."""
        if not self._begun:
            self._begun = True
            with suppress(EngineError):
                self._send(setup.line())

    def wait_ready(self) -> None:
        """Wait until it can compile.

        Raises:
            EngineError: it did not come up; its own words are in the server's log.
        """
        if self._ready:
            return
        try:
            self._line(_START_SECONDS)
        except ChildEndedError as error:
            raise EngineError(
                f"the process in which costly constraints are tried did not start ({error}); the server's log has its "
                "reason"
            ) from error
        self._ready = True

    def compile(self, spec: ConstraintSpec, seconds: float) -> dict[str, Any]:
        """Its answer, within so many seconds of wall time.

        Raises:
            ChildEndedError: it ended over it, or is not done.
            EngineError: it had ended before.
        """
        self._send(json.dumps({"kind": spec.kind, "source": spec.source}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(seconds))
        return answer

    def kill(self) -> None:
        """End it. A thread that waits for its answer is told; the pipes are closed by :meth:`close`."""
        self._process.kill()

    def close(self) -> None:
        """End it and give back all that it held; idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was not written yet is for nobody
                pipe.close()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError("the process in which costly constraints are tried has ended; send it again") from None

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        end, line = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not ready.select(max(0.0, end - time.monotonic())):
                    raise ChildEndedError(None)
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise ChildEndedError(self._process.wait())
                line += piece
        return line


def _interpreter() -> str:
    """This Python as a program: inside Triton's stub ``sys.executable`` is a ``python3`` on PATH, or nothing."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = (sys.executable, Path(sys.prefix) / "bin" / name, shutil.which(name), Path(sys.base_prefix) / "bin" / name)
    for path in found:
        if path and Path(path).name.startswith("python") and os.access(path, os.X_OK):
            return str(path)
    raise EngineError(f"no interpreter {name} on PATH, which costly constraints are tried with; install it")
