"""What child processes of ``heptagram serve`` have in common: they end when it does, however it ended."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def ending_with_us(number: signal.Signals, also: Callable[[], object] = int) -> Callable[[], None]:
    """For ``preexec_fn``: the kernel sends the child ``number`` when the thread that started it ends.

    Args:
        number: the signal.
        also: what else the child does before it becomes another program.
    """
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)
        also()
        if os.getppid() != parent:  # it died before the first line
            os._exit(1)

    return prepare


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Let an impatient second or third Ctrl-C wait until the block is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
