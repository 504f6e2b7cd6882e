"""What a request carries along for logs and traces: the ids that the sending task has, as Triton's own fields."""

from __future__ import annotations

from typing import Any

from heptagram_telemetry.logs import request_id
from heptagram_telemetry.trace_context import TRACEPARENT, traceparent


def carried() -> dict[str, Any]:
    """Arguments of tritonclient; Triton hands both on to every step of an ensemble."""
    header = traceparent.get()
    return {"request_id": request_id.get(), "parameters": {TRACEPARENT: header} if header else None}
