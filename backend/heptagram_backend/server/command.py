"""``heptagram serve``: prepare, start, wait, say what to try, serve until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import cast

from heptagram_backend.errors import LaunchError, ReleaseError
from heptagram_backend.server.arguments import ServeOptions, parse_arguments
from heptagram_backend.server.control import ModelControl
from heptagram_backend.server.control_key import read_key
from heptagram_backend.server.drain import drain
from heptagram_backend.server.gateway import Front, Gateway, NoGateway
from heptagram_backend.server.gateway_options import options_for
from heptagram_backend.server.hints import FRONT_MODEL, first_requests, how_to_stop, where
from heptagram_backend.server.launch import launch
from heptagram_backend.server.log import failure_report, new_log, status_of
from heptagram_backend.server.prepare import Prepared, prepare
from heptagram_backend.server.process import EXIT_TIMEOUT_S, Address, ServerProcess, netloc
from heptagram_backend.server.progress import Progress
from heptagram_backend.server.pulse import Pulse
from heptagram_backend.server.stubs import Stubs
from heptagram_backend.server.watchdog import Watchdog

_LOOK_EVERY_S = 0.25
_UNLOADING_S = 10.0
_HELD_UP = (
    f"stopping; what a dead process left unfinished may hold this up for {EXIT_TIMEOUT_S} s (Ctrl-C again ends it now)"
)
EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130


def command(argv: list[str]) -> int:
    """Run ``heptagram serve``; returns the exit code."""
    options = parse_arguments(argv)
    options.telemetry.hand_on()  # to the server, its models and the gateway
    _hear_signals()
    try:
        return serve(options)
    except (LaunchError, ReleaseError) as error:
        sys.stderr.write(f"heptagram serve: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("heptagram serve: interrupted\n")
        return EXIT_INTERRUPTED


def _hear_signals() -> None:
    """SIGTERM stops us, and so do a terminal's SIGINT and SIGHUP, unless whoever started us had them ignored.

    A shell does so for a job in the background of a script, and ``nohup``: such a server outlives Ctrl-C and terminal.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def serve(options: ServeOptions) -> int:
    """Serve until a signal comes; 0 after an ordered stop.

    Raises:
        LaunchError: the server cannot be started, or ended by itself.
        ReleaseError: a release or its checkpoint is wrong.
    """
    control_key = read_key(options.control_key_file) if options.control_key_file else None
    with Progress() as progress:
        progress.say("preparing")
        prepared = prepare(options, progress)
        server = launch(
            prepared.repository,
            options.address,
            threads=prepared.threads,
            control_key=control_key,
            reserved=prepared.reserved,
            report=progress.say_alone,
        )
        control = ModelControl(server.address)
        watchdog = Watchdog(Stubs(server.pid), control, report=_alarm)
        gateway: Front = NoGateway()
        try:
            progress.say("loading models")
            server.wait_ready(
                prepared.models,
                on_line=lambda line: _follow(progress, line),
                meanwhile=lambda: _ask(watchdog.look_at_start, server),
            )
            gateway = _gateway(prepared, options)
            gateway.wait_ready()
            progress.say("ready")
            progress.close()
            if options.demo:
                return _demo(server.address, options)
            return _serve(server, gateway, prepared.models, watchdog)
        finally:
            progress.say(_HELD_UP if watchdog.deaths else "stopping")
            _stop(gateway, server, lambda: drain(control, prepared.repository))
            progress.say("stopped")


def _stop(gateway: Front, server: ServerProcess, drained: Callable[[], float]) -> None:
    """The gateway first: what runs through it needs the server. Whoever is impatient with the one is with both.

    What has not ended within the bounds is cut, so that its readers are told at once.
    """
    left_s = 0.0
    try:
        if gateway.stop() and server.poll() is None:
            left_s = drained()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop(timeout_s=left_s and left_s + _UNLOADING_S)


def _gateway(prepared: Prepared, options: ServeOptions) -> Front:
    if prepared.openai_port is None:
        return NoGateway()
    asked = options_for(
        options.address,
        prepared.openai_port,
        served=prepared.served,
        log=new_log("gateway"),
        access_log=options.access_log,
    )
    return Gateway(asked, report=_alarm)


def _follow(progress: Progress, line: str) -> None:
    status = status_of(line)
    if status:
        progress.say(status)


def _alarm(text: str) -> None:
    """Say what the watchdog does; it is not the answer to anything, so it has a time of its own."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stderr.flush()


def _serve(server: ServerProcess, gateway: Front, models: Sequence[str], watchdog: Watchdog) -> int:
    try:
        sys.stdout.write(where(server, gateway))
        sys.stdout.write(first_requests(server.address, gateway) if FRONT_MODEL in models else "")
        sys.stdout.write(how_to_stop())
        sys.stdout.flush()
        pulse = Pulse(server.address)
        while server.poll() is None:
            server.guard()
            _ask(pulse.check, server)
            _ask(watchdog.look, server)
            gateway.look()
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return EXIT_OK
    raise LaunchError(f"tritonserver ended with status {server.poll()}\n{failure_report(server.log)}")


def _ask(look: Callable[[], None], server: ServerProcess) -> None:
    """Look after a server. One that is of no use any more is killed, and its log tells why."""
    try:
        look()
    except LaunchError as error:
        server.stop(timeout_s=0.0)
        raise LaunchError(f"{error}\n{failure_report(server.log)}") from error


def _demo(address: Address, options: ServeOptions) -> int:
    """Run the client's ``heptagram demo``, found as an entry point because the backend knows no client.

    Where a gateway is wanted and cannot be had, its line fails too.
    """
    (entry,) = entry_points(group="heptagram.commands", name="demo")
    run = cast(Callable[[list[str]], int], entry.load())
    openai = "none" if options.openai_port is None else netloc(address.host, options.openai_port)
    return run(["--grpc", address.grpc_url, "--http", address.http_url, "--openai", openai])
