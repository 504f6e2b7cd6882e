"""DeepSeek V4: DSML tool calls behind the text, reasoning between ``<think>`` and ``</think>``.

``reasoning_effort``: ``xhigh`` and ``max`` open the prompt with a demand for the utmost effort, every other name is the
model's ordinary thinking, ``none`` is none.
"""

from __future__ import annotations

from typing import Final

from heptagram_backend.conversation import Conventions
from heptagram_backend.formats.deepseek_v4.encode import Dialect
from heptagram_backend.formats.deepseek_v4.family import ROLES, DsmlFormat
from heptagram_backend.formats.deepseek_v4.markup import V4

__all__ = ["DeepSeekV4"]

_UTMOST: Final = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, \
rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, \
and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""


def _effort_text(effort: str | int | None) -> str:
    return _UTMOST if effort in ("xhigh", "max") else ""


class DeepSeekV4(DsmlFormat):
    name = "deepseek_v4"
    conventions = Conventions(ROLES, efforts=("minimal", "low", "medium", "high", "xhigh", "max"))
    dialect = Dialect(V4, _effort_text)
