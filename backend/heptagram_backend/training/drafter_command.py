"""``heptagram train-drafter``: a target answers prompts, and a DSpark drafter is trained on that."""

from __future__ import annotations

import os
import sys


def command(argv: list[str]) -> int:
    """Run ``heptagram train-drafter``; returns the exit code."""
    # subtle: must stand before torch is imported; see engines/__init__.py.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from heptagram_backend.errors import HeptagramError
    from heptagram_backend.training.drafter_arguments import parse_arguments

    values = parse_arguments(argv)
    os.environ.setdefault("OMP_NUM_THREADS", str(values.threads))
    from heptagram_backend.training.drafter_run import run

    try:
        run(values, lambda text: sys.stderr.write(f"{text}\n"))
    except HeptagramError as error:
        sys.stderr.write(f"heptagram train-drafter: {error}\n")
        return 1
    return 0
