"""The control tokens of Qwen's chat format."""

from __future__ import annotations

from typing import Final

from heptagram_backend.formats.base import When
from heptagram_backend.formats.hermes.markup import CALL_BEGIN, CALL_END, RESULT_BEGIN, RESULT_END

TURN_BEGIN: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
THINK_BEGIN: Final = "<think>"
THINK_END: Final = "</think>"
BEHIND_REASONING: Final = "\n\n"
MARKERS: Final = frozenset((CALL_BEGIN, CALL_END, THINK_BEGIN, THINK_END))
CONTROL_TOKENS: Final = (TURN_BEGIN, TURN_END, CALL_BEGIN, CALL_END, RESULT_BEGIN, RESULT_END, THINK_BEGIN, THINK_END)


def reasoning_of(prompt: str) -> When:
    """What a rendered prompt leaves to the answer. What stands at its end is the template's, never the caller's.

    Templates of thinking models open the reasoning, those of hybrid ones close an empty one when thinking is off, and
    others leave it to the model.
    """
    end = prompt.rstrip("\n")
    return "always" if end.endswith(THINK_BEGIN) else "never" if end.endswith(THINK_END) else "maybe"
