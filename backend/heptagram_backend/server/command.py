"""``heptagram serve``: prepare, start, wait, say what to try, serve until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import LaunchError, ReleaseError
from heptagram_backend.server.arguments import ServeOptions, parse_arguments
from heptagram_backend.server.control import ModelControl
from heptagram_backend.server.launch import launch, models_of
from heptagram_backend.server.log import failure_report, status_of
from heptagram_backend.server.model import values_for
from heptagram_backend.server.process import EXIT_TIMEOUT_S, Address, ServerProcess
from heptagram_backend.server.progress import Progress
from heptagram_backend.server.pulse import Pulse
from heptagram_backend.server.repository import project_repository, releases_of, write_repository
from heptagram_backend.server.stubs import Stubs
from heptagram_backend.server.watchdog import Watchdog

_FRONT_MODEL = "chat"
_LOOK_EVERY_S = 0.25
_HELD_UP = (
    f"stopping; what a dead process left unfinished may hold this up for {EXIT_TIMEOUT_S} s (Ctrl-C again ends it now)"
)
EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130


def command(argv: list[str]) -> int:
    """Run ``heptagram serve``; returns the exit code."""
    options = parse_arguments(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return serve(options)
    except (LaunchError, ReleaseError) as error:
        sys.stderr.write(f"heptagram serve: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("heptagram serve: interrupted\n")
        return EXIT_INTERRUPTED


def serve(options: ServeOptions) -> int:
    """Serve until a signal comes; 0 after an ordered stop.

    Raises:
        LaunchError: the server cannot be started, or ended by itself.
        ReleaseError: a release or its checkpoint is wrong.
    """
    if options.openai_port is not None:
        sys.stderr.write(f"--openai-port {options.openai_port}: the gateway is not there yet, so nothing listens\n")
    with Progress() as progress:
        progress.say("preparing")
        repository, threads = _prepare(options, progress)
        models = models_of(repository)
        server = launch(repository, options.address, threads=threads, report=lambda text: _say_alone(progress, text))
        watchdog = Watchdog(Stubs(server.pid), ModelControl(server.address), report=_alarm)
        try:
            progress.say("loading models")
            server.wait_ready(models, on_line=lambda line: _follow(progress, line))
            progress.say("ready")
            progress.close()
            return _demo(server.address) if options.demo else _serve(server, models, watchdog)
        finally:
            progress.say(_HELD_UP if watchdog.deaths else "stopping")
            server.stop()
            progress.say("stopped")


def _prepare(options: ServeOptions, progress: Progress) -> tuple[Path, int]:
    """The repository to serve, all its checkpoints ready, and the compute threads of its engines."""
    repository = options.model_repository or _own_repository(options, progress)
    models_of(repository)
    releases = releases_of(repository)
    for checkpoint in sorted({release.checkpoint for release in releases.values()}):
        _resolve(checkpoint, progress)
    return repository, max((release.engine.threads for release in releases.values()), default=1)


def _resolve(checkpoint: str, progress: Progress) -> Path:
    progress.say(f"checking checkpoint {checkpoint}")
    return resolve(checkpoint, report=lambda text: _say_alone(progress, text))


def _own_repository(options: ServeOptions, progress: Progress) -> Path:
    """The project's repository, or a copy of it for another checkpoint or with other values."""
    source, overrides = project_repository(), options.overrides
    if options.model is not None:
        overrides = values_for(options.model, _resolve(options.model, progress), overrides)
    return write_repository(source, overrides) if overrides else source


def _say_alone(progress: Progress, text: str) -> None:
    """Say what a child's own progress bar then follows below."""
    progress.say(text)
    progress.close()


def _follow(progress: Progress, line: str) -> None:
    status = status_of(line)
    if status:
        progress.say(status)


def _alarm(text: str) -> None:
    """Say what the watchdog does; it is not the answer to anything, so it has a time of its own."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stderr.flush()


def _serve(server: ServerProcess, models: Sequence[str], watchdog: Watchdog) -> int:
    try:
        sys.stdout.write(_where(server) + (_first_request(server.address) if _FRONT_MODEL in models else ""))
        sys.stdout.write("\nCtrl-C stops the server.\n")
        sys.stdout.flush()
        pulse = Pulse(server.address)
        while server.poll() is None:
            _check(server, pulse)
            watchdog.look()
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return EXIT_OK
    raise LaunchError(f"tritonserver ended with status {server.poll()}\n{failure_report(server.log)}")


def _check(server: ServerProcess, pulse: Pulse) -> None:
    try:
        pulse.check()
    except LaunchError as error:
        server.stop(timeout_s=0.0)
        raise LaunchError(f"{error}\n{failure_report(server.log)}") from error


def _where(server: ServerProcess) -> str:
    address = server.address
    return (
        f"gRPC {address.grpc_url}   HTTP http://{address.http_url}   metrics {address.metrics_url}\nlog  {server.log}\n"
    )


def _first_request(address: Address) -> str:
    body = json.dumps({"request": json.dumps({"messages": [{"role": "user", "content": "Say hello."}]})})
    return (
        "\nTry, in another terminal:\n"
        f"  {_client_program()} chat 'Say hello.' --url {address.grpc_url}\n"
        f"  curl -sN http://{address.http_url}/v2/models/{_FRONT_MODEL}/generate_stream -d {shlex.quote(body)}\n"
    )


def _client_program() -> str:
    """How to call ``heptagram`` from this folder: by name if it is on PATH, else the script beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), "heptagram")
    return "heptagram" if shutil.which("heptagram") else min(beside, os.path.relpath(beside), key=len)


def _demo(address: Address) -> int:
    """Run the client's ``heptagram demo``, found as an entry point because the backend knows no client."""
    (entry,) = entry_points(group="heptagram.commands", name="demo")
    run = cast(Callable[[list[str]], int], entry.load())
    return run(["--grpc", address.grpc_url, "--http", address.http_url])
