"""Log lines, as text or as JSON, each with the id of the request that it is about.

A line may have further fields: ``log.info("ended", extra={"fields": {...}})``. Their ``request_id`` comes before that
of the context.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from heptagram_telemetry.settings import Telemetry

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Of the request that a task or a thread works for."""

_OURS: Final = ("heptagram_backend", "heptagram_client", "heptagram_gateway", "heptagram_telemetry")


def configure(telemetry: Telemetry, out: TextIO | None = None) -> None:
    """Write the process's lines to ``out``, by default stderr: ours from the level on, those of others from warnings
    on. Does nothing where there is a handler already."""
    handler = logging.StreamHandler(sys.stderr if out is None else out)
    handler.setFormatter(JsonLines() if telemetry.log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(telemetry.log_level.upper())


class TextLines(logging.Formatter):
    """Time, level, request, logger, message, then the fields as ``name=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(request_id)s %(name)s: %(message)s%(more)s")

    def format(self, record: logging.LogRecord) -> str:
        record.request_id = _request_of(record) or "-"
        record.more = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return super().format(record)


class JsonLines(logging.Formatter):
    """One object a line, an exception's traceback in it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"request_id": named} if (named := _request_of(record)) else {}),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)


def _request_of(record: logging.LogRecord) -> str:
    """That of the line itself, for threads that work for many."""
    return str(getattr(record, "fields", {}).get("request_id") or request_id.get())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", {})
    return {name: value for name, value in given.items() if value is not None and name != "request_id"}
