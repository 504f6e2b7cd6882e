"""The row-invariance self-test on the embedded checkpoint, as a program: progress on stderr, a finding on stdout.

It runs in a process of its own, so that a crash of torch on unusual hardware is a finding too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from heptagram_backend.checkpoint import DEFAULT, EMBEDDED_PREFIX, resolve
from heptagram_backend.doctor.finding import Finding

NAME: Final = "one answer"
_MODULE: Final = "heptagram_backend.doctor.selftest"
# Contexts around the first two multiples of 256 keys, alone and in company.
_MAX_MODEL_LEN: Final = 536
_SLOTS: Final = 4
_ADVICE: Final = "on this device answers may depend on what runs beside them; report it with your processor and torch"


def one_answer(report: Callable[[str], object]) -> Finding:
    """Run the self-test in a child; ``report`` is told each line of its progress."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    environment |= {"OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        last = ""
        for line in child.stderr:
            last = line.strip() or last
            report(last)
        result = child.stdout.read()
    if child.returncode:
        return Finding(NAME, "missing", f"the self-test ended with status {child.returncode}: {last}", _ADVICE)
    told = json.loads(result)
    if told["passed"]:
        return Finding(NAME, "ok", f"the self-test passed, {told['text']} ({told['seconds']:.0f} s)")
    return Finding(NAME, "missing", f"the self-test failed: {told['text']}", _ADVICE)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    from heptagram_backend.release import EngineOptions
    from heptagram_backend.targets import load_target
    from heptagram_backend.targets.invariance import row_invariance

    began = time.monotonic()
    folder = resolve(f"{EMBEDDED_PREFIX}{DEFAULT}", report=_say)
    _say("loading weights")
    target = load_target(replace(EngineOptions(), max_model_len=_MAX_MODEL_LEN, max_num_seqs=_SLOTS), folder)
    result = row_invariance(target, report=_say)
    told = {"passed": result.passed, "text": str(result), "seconds": time.monotonic() - began}
    sys.stdout.write(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
