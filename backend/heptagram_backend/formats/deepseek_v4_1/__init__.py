"""DeepSeek V4.1: as V4, with other tags, system messages anywhere, and a reasoning effort in numbers.

``reasoning_effort`` is a number from 1 to 100, or ``low`` (50), ``high`` (75, which also holds without one) or ``max``
(100); of the other names ``minimal`` is ``low``, and ``medium`` and ``xhigh`` are ``high``.

Its tokenizer must have ``<｜System｜>`` and ``<｜deepseek_image｜>``, which V4's has not. Images are not taken.
"""

from __future__ import annotations

from typing import Final

from heptagram_backend.conversation import Conventions
from heptagram_backend.formats.deepseek_v4.encode import Dialect
from heptagram_backend.formats.deepseek_v4.family import ROLES, DsmlFormat
from heptagram_backend.formats.deepseek_v4.markup import V4_1

__all__ = ["DeepSeekV41"]

_SYSTEM: Final = "<｜System｜>"
_BUDGETS: Final = {"minimal": 50, "low": 50, "medium": 75, "high": 75, "xhigh": 75, "max": 100}


def _effort_text(effort: str | int | None) -> str:
    budget = _BUDGETS[effort or "high"] if not isinstance(effort, int) else effort
    return f"Reasoning Effort: {budget} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"


class DeepSeekV41(DsmlFormat):
    name = "deepseek_v4_1"
    conventions = Conventions(ROLES, efforts=tuple(_BUDGETS), effort_range=(1, 100))
    dialect = Dialect(V4_1, _effort_text, system=_SYSTEM, results_ask=False)
    extra_tokens = (_SYSTEM, "<｜deepseek_image｜>")
