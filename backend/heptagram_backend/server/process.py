"""One tritonserver process: started with explicit options, awaited, stopped in order, leaving nothing behind."""

from __future__ import annotations

import ctypes
import http.client
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.child import ending_with_us, signals_blocked
from heptagram_backend.server.control_key import Restricted, file_name
from heptagram_backend.server.find import TritonInstall
from heptagram_backend.server.log import LogFollower, failure_report, open_log
from heptagram_backend.server.runtime import Runtime
from heptagram_backend.server.segments import Segments

EXIT_TIMEOUT_S = 30
_POLL_S = 0.1
_STACK_BYTES = 512 << 20
_PR_SET_CHILD_SUBREAPER = 36
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. A wildcard host is reached through loopback."""

    host: str
    grpc_port: int
    http_port: int
    metrics_port: int

    @property
    def reachable_host(self) -> str:
        return _reachable(self.host)

    @property
    def grpc_url(self) -> str:
        """``host:port``, without a scheme, as gRPC clients take it."""
        return netloc(self.host, self.grpc_port)

    @property
    def http_url(self) -> str:
        """``host:port``, without a scheme, as tritonclient takes it."""
        return netloc(self.host, self.http_port)

    @property
    def metrics_url(self) -> str:
        return f"http://{netloc(self.host, self.metrics_port)}/metrics"


def netloc(host: str, port: int) -> str:
    """``host:port`` for a client on this machine; an IPv6 address in brackets."""
    reachable = _reachable(host)
    return f"[{reachable}]:{port}" if ":" in reachable else f"{reachable}:{port}"


def _reachable(host: str) -> str:
    return _WILDCARDS.get(host, host)


class ServerProcess:
    """A running tritonserver and its stubs, in a session of their own so that a terminal's Ctrl-C does not reach them.

    Start it from the main thread: the kernel stops the server when the thread that started it ends. Use it as a
    context manager, or call :meth:`stop`.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        address: Address,
        log: Path,
        segments: Segments,
        restricted: Restricted,
    ) -> None:
        self._process = process
        self._segments = segments
        self._restricted: Restricted | None = restricted
        self.address = address
        self.log = log

    @classmethod
    def start(
        cls,
        *,
        install: TritonInstall,
        runtime: Runtime,
        repository: Path,
        address: Address,
        log: Path,
        environment: Mapping[str, str],
        restricted: Restricted,
    ) -> Self:
        """Start the server on ``repository``, all models loaded; returns before it is ready."""
        segments = Segments()
        segments.keep(file_name(address.reachable_host, address.http_port), restricted.control_key)
        options = [*_options(runtime, repository, address, segments.prefix), *restricted.options()]
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        with open_log(log) as output:
            process = subprocess.Popen(
                [str(install.binary), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                pass_fds=(segments.lock,),
                preexec_fn=ending_with_us(signal.SIGTERM, _widen_stacks),
            )
        return cls(process, address=address, log=log, segments=segments, restricted=restricted)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, or None while the server runs."""
        return self._process.poll()

    def wait_ready(
        self,
        models: Sequence[str],
        *,
        timeout_s: float = 600.0,
        on_line: Callable[[str], object] = str,
        meanwhile: Callable[[], object] = int,
    ) -> None:
        """Wait until each of ``models`` answers that it is ready.

        Each new line of the log goes to ``on_line``; ``meanwhile`` is called again and again.

        Raises:
            LaunchError: the server ended, or time ran out; the message holds the end of the log.
        """
        follower = LogFollower(self.log)
        deadline = time.monotonic() + timeout_s
        waiting = list(models)
        while waiting:
            ended = self.poll() is not None
            for line in follower.lines():
                if self._restricted:  # what writes a log has read its options
                    self._restricted.conceal(self.pid)
                    self._restricted = None
                on_line(line)
            if ended:
                raise LaunchError(f"tritonserver ended with status {self.poll()}\n{failure_report(self.log)}")
            meanwhile()
            if time.monotonic() > deadline:
                raise LaunchError(f"{waiting[0]} was not ready after {timeout_s:.0f} s\n{failure_report(self.log)}")
            if is_ready(self.address, waiting[0]):
                waiting.pop(0)
            else:
                time.sleep(_POLL_S)
        self.guard()

    def guard(self) -> None:
        """Keep other users out of what newly loaded models exchange with the server. Call this a few times a second."""
        self._segments.guard()

    def stop(self, *, timeout_s: float = EXIT_TIMEOUT_S + 10.0) -> None:
        """Stop in order: the server finishes its streams and unloads, what is left is killed, segments are removed.

        Idempotent. A KeyboardInterrupt while it waits ends the waiting, not the stop.
        """
        try:
            if self.poll() is None:
                self._process.terminate()
                self._process.wait(timeout_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass  # what is still there is killed below
        finally:
            with signals_blocked():
                _kill_group(self._process)
                self._segments.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _widen_stacks() -> None:
    """Set the stack of the calling process's later threads to 512 MiB of address space, or what is allowed.

    subtle: tritonserver's HTTP front (2.51) lays a request's body out on the stack before any size is checked, so with
    the usual 8 MiB anybody's body of 4 MB ends the whole server. Memory is only used where a stack is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    allowed = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, _STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_STACK, (allowed, hard))


def is_ready(address: Address, model: str) -> bool:
    """Whether ``model`` is ready. (``/v2/health/ready`` says no while any version drains and after a failed load.)"""
    connection = http.client.HTTPConnection(address.reachable_host, address.http_port, timeout=5)
    try:
        connection.request("GET", f"/v2/models/{model}/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _options(runtime: Runtime, repository: Path, address: Address, segments: str) -> list[str]:
    return [
        f"--model-repository={repository}",
        "--model-control-mode=explicit",  # so that versions can be loaded and unloaded while it serves
        "--load-model=*",
        "--disable-auto-complete-config",
        "--exit-on-error=true",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        f"--backend-directory={runtime.backends}",
        f"--backend-config=python,shm-region-prefix-name={segments}",
        f"--http-address={address.host}",
        f"--http-port={address.http_port}",
        f"--grpc-address={address.host}",
        f"--grpc-port={address.grpc_port}",
        f"--metrics-address={address.host}",
        f"--metrics-port={address.metrics_port}",
    ]


def _kill_group(process: subprocess.Popen[bytes], *, timeout_s: float = 5.0) -> None:
    """Kill what is left of the server's session, and reap it: orphaned stubs have become our children."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        process.wait()
        with suppress(ChildProcessError):
            os.waitpid(-process.pid, os.WNOHANG)
        time.sleep(0.01)
