"""Compiling a costly constraint where it can be stopped: a process of its own, tried before the server compiles it.

A compile inside the server cannot be cancelled and its memory cannot be limited. So what *may* be costly
(:func:`~heptagram_backend.trial.estimate.estimate`) is compiled in a child first. The child is killed at a limit of
processor time, and the constraint is then refused; what passes is compiled again here, for compiled grammars do not
travel.
"""

from __future__ import annotations

from heptagram_backend.trial.estimate import Estimate, estimate
from heptagram_backend.trial.runner import Trial
from heptagram_backend.trial.verdicts import Verdicts

__all__ = ["Estimate", "Trial", "Verdicts", "estimate"]
