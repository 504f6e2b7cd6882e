"""DeepSeek V4: DSML tool calls behind the text, reasoning between ``<think>`` and ``</think>``.

``reasoning_effort`` opens the prompt with a demand for more effort. The models of July 2026 (V4-Flash-0731) know three
degrees and those before them, the previews, two, in other words; else the two formats are one.

===============================  =============  =====================
``reasoning_effort``             deepseek_v4    deepseek_v4_preview
===============================  =============  =====================
minimal, low, medium, or absent  no words       no words
high                             the utmost     no words
xhigh                            the utmost     the utmost
max                              and beyond     the utmost
===============================  =============  =====================
"""

from __future__ import annotations

from typing import Final

from heptagram_backend.conversation import Conventions
from heptagram_backend.formats.deepseek_v4.encode import Dialect
from heptagram_backend.formats.deepseek_v4.family import ROLES, DsmlFormat
from heptagram_backend.formats.deepseek_v4.markup import V4

__all__ = ["DeepSeekV4", "DeepSeekV4Preview"]

_CONVENTIONS: Final = Conventions(ROLES, efforts=("minimal", "low", "medium", "high", "xhigh", "max"))
_UTMOST: Final = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, \
rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, \
and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""
_BEYOND: Final = """\
Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the \
problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause \
rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no \
assumption remains unchecked and no error remains undiscovered.

"""


def _effort_text(effort: str | int | None) -> str:
    return {"high": _UTMOST, "xhigh": _UTMOST, "max": _BEYOND}.get(str(effort), "")


def _effort_text_of_previews(effort: str | int | None) -> str:
    return _UTMOST if effort in ("xhigh", "max") else ""


class DeepSeekV4(DsmlFormat):
    name = "deepseek_v4"
    conventions = _CONVENTIONS
    dialect = Dialect(V4, _effort_text)


class DeepSeekV4Preview(DsmlFormat):
    name = "deepseek_v4_preview"
    conventions = _CONVENTIONS
    dialect = Dialect(V4, _effort_text_of_previews)
