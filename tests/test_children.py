"""The tests' own children."""

from __future__ import annotations

import signal
import sys

from tests.children import child
from tests.server.repository import ROOT

_ASKS_A_CHILD = """
import os, signal, subprocess, sys
from tests.children import give_children_default_signals
give_children_default_signals()
for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
subprocess.run([sys.executable, "-c", "import signal as s; print(s.getsignal(s.SIGINT), s.getsignal(s.SIGHUP))"])
"""


def test_children_of_a_run_in_the_background_hear_signals() -> None:
    with child([sys.executable, "-c", _ASKS_A_CHILD], cwd=ROOT, ignoring=(signal.SIGINT, signal.SIGHUP)) as process:
        said, _ = process.communicate(timeout=30)
    assert said == f"{signal.default_int_handler} {signal.SIG_DFL}\n"
