"""What was exported to a file, as a reader of traces sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from heptagram_telemetry.trace_context import TraceContext

PARENT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@dataclass(frozen=True, slots=True)
class Read:
    """``parent`` and ``id`` are span ids; times in seconds."""

    name: str
    service: str
    trace: str
    id: str
    parent: str | None
    start: float
    end: float
    kind: str
    error: str | None
    attributes: Mapping[str, Any]


def read_spans(path: Path) -> list[Read]:
    return list(_read(path)) if path.exists() else []


def _read(path: Path) -> Iterator[Read]:
    for line in path.read_text().splitlines():
        data = json.loads(line)
        parent = data["parent_id"]
        yield Read(
            name=data["name"],
            service=data["resource"]["attributes"]["service.name"],
            trace=_hex(data["context"]["trace_id"]),
            id=_hex(data["context"]["span_id"]),
            parent=None if parent is None else _hex(parent),
            start=_seconds(data["start_time"]),
            end=_seconds(data["end_time"]),
            kind=data["kind"].removeprefix("SpanKind."),
            error=data["status"].get("description"),
            attributes=data["attributes"],
        )


def _hex(text: str) -> str:
    return text.removeprefix("0x")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
