"""``heptagram doctor``: looks at everything, prints one table, and returns 1 when something essential is missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from heptagram_backend.doctor import machine, packages, selftest
from heptagram_backend.doctor.finding import Finding, guarded
from heptagram_backend.doctor.table import as_json, as_table, healthy
from heptagram_backend.server.progress import Progress

_LOOKS: Final[tuple[tuple[str, Callable[[], Finding]], ...]] = (
    ("python", machine.python),
    ("C library", machine.c_library),
    ("tritonserver", packages.triton),
    ("numpy", packages.numpy),
    ("torch", packages.torch),
    ("transformers", packages.transformers),
    ("xgrammar", packages.xgrammar),
    ("cache folder", machine.cache),
    ("embedded model", packages.checkpoint),
    ("shared memory", machine.shared_memory),
    ("ports", machine.ports),
)
_DESCRIPTION: Final = "Say what is here, what is missing and what to do. Status 1 when something essential is missing."
# Without these the self-test cannot run.
_NEEDED: Final = frozenset({"torch", "transformers"})


def command(argv: list[str]) -> int:
    """Run ``heptagram doctor``; returns the exit code."""
    parser = argparse.ArgumentParser(prog="heptagram doctor", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="leave out the self-test, which computes for a while")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    with Progress() as progress:
        findings = _look(progress, quick=options.quick)
        progress.clear()
    colours = sys.stdout.isatty()
    sys.stdout.write(as_json(findings) if options.json else as_table(findings, colours=colours))
    return 0 if healthy(findings) else 1


def _look(progress: Progress, *, quick: bool) -> Sequence[Finding]:
    findings = []
    for name, look in _LOOKS:
        if sys.stderr.isatty():
            progress.say(f"looking at {name}")
        findings.append(guarded(name, look))
    absent = sorted(finding.name for finding in findings if finding.name in _NEEDED and finding.state == "missing")
    if quick or absent:
        why = f"it needs {', '.join(absent)}" if absent else "--quick"
        findings.append(Finding(selftest.NAME, "note", f"not tested: {why}"))
    else:
        findings.append(guarded(selftest.NAME, lambda: selftest.one_answer(lambda text: _test(progress, text))))
    return findings


def _test(progress: Progress, text: str) -> None:
    progress.say(f"self-test: {text}")
