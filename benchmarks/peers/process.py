"""A peer's worker as a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import ROOT
from benchmarks.peers.environments import PeerError
from benchmarks.peers.worker import Answer, Burst, How


class Worker:
    """Started when made; ready after :meth:`wait`, and stopped between questions, so that it takes no time from others.

    A context manager.

    Args:
        path: folders that the worker imports from before all others.

    Raises:
        PeerError: it ended; the message holds the end of what it wrote to standard error.
    """

    def __init__(self, python: Path, module: str, workload: Path, threads: int, *, path: Sequence[Path] = ()) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed by __exit__)
        self._process = subprocess.Popen(
            [str(python), "-m", module, str(workload), str(threads)],
            cwd=ROOT,
            env=os.environ
            | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
            | ({"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> None:
        """Return when the worker has loaded its model."""
        self._line()
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, number: int) -> Answer:
        """The answer to the workload's prompt ``number``."""
        return Answer(**self._asked(number))

    def ask_all(self, numbers: Sequence[int], how: How) -> Burst:
        """The answers to these prompts, all asked at once."""
        return Burst.read(self._asked({"numbers": list(numbers), "how": asdict(how)}))

    def _asked(self, what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(f"{json.dumps(what)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._fault() from None
        answer: dict[str, Any] = json.loads(self._line())
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._fault()
        return line

    def _fault(self) -> PeerError:
        status = self._process.wait()
        self._errors.seek(0)
        said: Sequence[str] = [line.strip() for line in self._errors if line.strip()]
        return PeerError(f"its worker ended with status {status}: {' '.join(said[-2:])}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()
