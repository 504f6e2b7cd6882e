"""Child processes of tests: started as a terminal starts them, and gone at the end, however the test ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

_FROM_A_TERMINAL: Final = (signal.SIGINT, signal.SIGHUP)


def give_children_default_signals() -> None:
    """Undo for children what ``&`` in a script and ``nohup`` do to this process, which stays as deaf as it was.

    A signal that is ignored stays so in a new program; one that has a handler gets back its default.
    """
    for number in _FROM_A_TERMINAL:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


@contextmanager
def child(
    command: Sequence[str],
    *,
    stdin: int | None = None,
    stderr: int | None = subprocess.STDOUT,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    ignoring: Sequence[signal.Signals] = (),
) -> Iterator[subprocess.Popen[str]]:
    """A child in a session of its own, with a pipe for what it says; killed at the end, with its pipes closed.

    Args:
        command: the program and its arguments.
        stdin: as for :class:`subprocess.Popen`.
        stderr: as for :class:`subprocess.Popen`.
        cwd: its folder; ours where there is none.
        env: its environment; ours where there is none.
        ignoring: the signals that it finds ignored, as a job in the background does.
    """

    def ignore() -> None:
        for number in ignoring:
            signal.signal(number, signal.SIG_IGN)

    with subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        cwd=cwd,
        env=env,
        start_new_session=True,
        preexec_fn=ignore if ignoring else None,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
