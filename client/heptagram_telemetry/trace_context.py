"""The place of a request in a trace, as W3C's Trace Context writes it in the header ``traceparent``."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

TRACEPARENT: Final = "traceparent"
traceparent: Final[ContextVar[str | None]] = ContextVar(TRACEPARENT, default=None)
"""What is handed on with the requests that a task sends."""

_IDS: Final = r"-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
# Versions after 00 may say more behind a dash; ff is none.
_HEADER: Final = re.compile(rf"(?:00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-.*)?)")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Ids are lower-case hexadecimal, 32 and 16 digits; whoever began the trace says whether it is ``sampled``."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def parse(cls, header: str | None) -> TraceContext | None:
        """``None`` for a header that is missing or wrong, which begins a new trace."""
        match = _HEADER.fullmatch(header or "")
        if match is None:
            return None
        trace_id, span_id, flags = (part for part in match.groups() if part is not None)
        if not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & 1))

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"
