"""What is known of one request while it runs: for the access log and the metrics, never any content."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Final, cast

from starlette.types import Scope

from heptagram_gateway.errors import ApiError
from heptagram_telemetry.logs import request_id
from heptagram_wire.events import Event, Finish, Ping, Start

_KEY: Final = "heptagram.record"
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
GONE: Final = 499  # nginx's word for a client that left


@dataclass(slots=True)
class Record:
    """Times are seconds since the request's headers. ``status`` is 0 until there is one."""

    id: str
    method: str
    endpoint: str = "other"
    client: str | None = None
    model: str | None = None
    stream: bool = False
    status: int = 0
    error: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_event_s: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def see(self, event: Event) -> None:
        """Take note of an event on its way out."""
        if isinstance(event, Start):
            self.prompt_tokens += event.prompt_tokens
        elif isinstance(event, Finish):
            self.finished(event.reason, event.usage.completion_tokens)
        elif self.first_event_s is None and not isinstance(event, Ping):
            self.first_event_s = self.elapsed_s

    def finished(self, reason: str, completion_tokens: int) -> None:
        self.finish_reason = reason
        self.completion_tokens += completion_tokens

    def failed(self, error: ApiError) -> None:
        self.error = error.code or error.type


def begin(scope: Scope) -> Record:
    """The record of a new request, kept in its scope. The client's own ``x-request-id`` is taken if it is plain."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    id = given.decode() if _REQUEST_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"
    client = scope.get("client")
    record = Record(id, scope["method"], client=client[0] if client else None)
    request_id.set(id)
    scope.setdefault("state", {})[_KEY] = record
    return record


def record_of(scope: Scope) -> Record:
    return cast(Record, scope["state"][_KEY])
