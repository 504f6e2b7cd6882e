"""What a command does, as a list of steps: each is safe to do again, so a command that was cut short is begun anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """``text`` says in the imperative what ``run`` does."""

    text: str
    run: Callable[[], object]


def run_all(steps: Sequence[Step], report: Callable[[str], object]) -> None:
    for step in steps:
        report(step.text)
        step.run()
