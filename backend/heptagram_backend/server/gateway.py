"""The OpenAI-compatible gateway below ``heptagram serve``: started, awaited, started again when it dies, ended.

It runs in a session of its own, so that a terminal's Ctrl-C does not reach it, and writes into a log file, so that
nothing has to read a pipe. When the launcher is killed the kernel kills it too: unlike Triton it leaves nothing behind.
"""

from __future__ import annotations

import http.client
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.child import ending_with_us, signals_blocked
from heptagram_backend.server.gateway_options import DRAIN_S, GatewayOptions
from heptagram_backend.server.log import failure_report, open_log

_EXIT_MARGIN_S: Final = 10
_POLL_S: Final = 0.1
# Pauses before the first, second, ... start within the window; further ones wait as long as the last.
_PAUSES_S: Final = (0.0, 1.0, 4.0, 16.0, 60.0)
_WINDOW_S: Final = 600.0


class Front(Protocol):
    """What ``serve`` does with a gateway, or without one."""

    @property
    def netloc(self) -> str | None: ...

    @property
    def log(self) -> Path | None: ...

    def wait_ready(self) -> None: ...

    def look(self) -> None: ...

    def stop(self) -> bool: ...


class NoGateway:
    """Nothing was asked for, or nothing is installed."""

    netloc: str | None = None
    log: Path | None = None

    def wait_ready(self) -> None:
        """There is nothing to wait for."""

    def look(self) -> None:
        """There is nothing to see."""

    def stop(self) -> bool:
        return True


class Gateway:
    """A running gateway; ``report`` is told in a line when it died.

    Make it in the main thread: the kernel kills it when the thread that started it ends.
    """

    def __init__(
        self,
        options: GatewayOptions,
        *,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._report = report
        self._clock = clock
        self._deaths: list[float] = []
        self._due = 0.0
        self._process: subprocess.Popen[bytes] | None = _start(options)

    @property
    def netloc(self) -> str:
        return self._options.netloc

    @property
    def log(self) -> Path:
        return self._options.log

    def wait_ready(self, *, timeout_s: float = 60.0) -> None:
        """Wait until it can answer chats.

        Raises:
            LaunchError: it ended, or time ran out; the message holds the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while (reason := reason_not_ready(self.netloc)) is not None:
            status = self._process.poll() if self._process else None
            if status is not None:
                raise LaunchError(f"the gateway ended with status {status}\n{failure_report(self.log)}")
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"the gateway was not ready after {timeout_s:.0f} s ({reason})\n{failure_report(self.log)}"
                )
            time.sleep(_POLL_S)

    def look(self) -> None:
        """See whether it has ended, and start it when that is due. Call this a few times a second."""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            self._plan(f"the gateway ended with status {status}, its requests are lost")
        if self._process is None and self._clock() >= self._due:
            try:
                self._process = _start(self._options)
            except OSError as error:  # no memory, no process left
                self._plan(f"the gateway cannot be started ({error.strerror})")

    def _plan(self, what: str) -> None:
        now = self._clock()
        recent = [moment for moment in self._deaths if now - moment < _WINDOW_S]
        pause = _PAUSES_S[min(len(recent), len(_PAUSES_S) - 1)]
        self._deaths = [*recent, now]
        self._due = now + pause
        self._report(f"{what}; it is started again {f'in {pause:.0f} s' if pause else 'now'} (log {self.log})")

    def stop(self) -> bool:
        """End it in order: what runs may finish within ``DRAIN_S``, then its readers are told.

        Returns:
            False where a KeyboardInterrupt cut the waiting short; it is killed then.
        """
        process = self._process
        if process is None:
            return True
        try:
            process.terminate()
            process.wait(DRAIN_S + _EXIT_MARGIN_S)
        except subprocess.TimeoutExpired:
            return True  # it is killed below
        except KeyboardInterrupt:
            return False
        finally:
            with signals_blocked():
                process.kill()
                process.wait()
        return True


def reason_not_ready(address: str) -> str | None:
    """Why the gateway at ``host:port`` cannot answer now; None when it can."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        said = response.read(1000).decode("utf-8", "replace")
        return None if response.status == 200 else said
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    finally:
        connection.close()


def _start(options: GatewayOptions) -> subprocess.Popen[bytes]:
    with open_log(options.log) as output:
        return subprocess.Popen(
            options.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ending_with_us(signal.SIGKILL),
        )
