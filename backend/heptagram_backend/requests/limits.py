"""Bounds on one request, so that reading it costs a bounded amount."""

from __future__ import annotations

from dataclasses import dataclass, field

from heptagram_backend.schema.limits import SchemaLimits


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Lengths in characters unless said otherwise. Part of ``limits`` in ``release.yaml``."""

    bytes: int = 4 << 20
    depth: int = 96  # of nested JSON
    values: int = 200_000  # JSON values in all
    number: int = 400  # digits of one number
    messages: int = 4_096
    tools: int = 128
    name: int = 64  # of a tool
    id: int = 256
    choices: int = 16  # answers to one request: its `n`
    stops: int = 16
    stop: int = 256
    stop_token_ids: int = 64
    template_kwargs: int = 32
    schema: SchemaLimits = field(default_factory=SchemaLimits)
