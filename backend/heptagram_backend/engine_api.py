"""The engine as its callers see it, so that Triton glue and engines change independently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_wire.events import Event


class Sink(Protocol):
    """Where one request's output goes. The engine calls it from its own threads, one call at a time per request."""

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        """Pass events on; with ``final`` they are the last ones. Must not raise."""

    def fail(self, error: HeptagramError) -> None:
        """Nothing was sent yet and nothing will be: report an error and end the request. Must not raise."""


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Gauges and counters. At rest ``running``, ``waiting``, ``slots_used``, ``blocks_held`` and ``live_matchers`` are
    zero; ``blocks_cached`` are held by nobody but may still be found. Of the ``masked_rows`` that were verified under a
    grammar, ``mask_hits`` lay on the device already; ``mask_bytes`` were uploaded for the others."""

    running: int
    waiting: int
    slots_used: int
    slots_total: int
    live_matchers: int
    requests_finished: int
    requests_failed: int
    requests_cancelled: int
    invalid_outputs: int
    prompt_tokens: int
    generated_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    steps: int
    preemptions: int = 0
    prefix_hit_tokens: int = 0
    blocks_held: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    masked_rows: int = 0
    mask_hits: int = 0
    mask_bytes: int = 0


class Engine(Protocol):
    def submit(self, request: GenerationRequest, sink: Sink) -> str:
        """Queue a request; returns at once with its unguessable id. Output and errors then go to ``sink``.

        Raises:
            RequestError: the request can never run here (prompt too long, another vocabulary).
            OverloadedError: the queue is full, or the engine is draining.
        """

    def cancel(self, id: str) -> bool:
        """End a request at the next step; its sink gets ``finish`` with reason ``cancelled``. False if unknown."""

    def snapshot(self) -> EngineSnapshot: ...

    def close(self) -> None:
        """Finish what runs within a bound, cancel the rest, refuse what comes, release everything; idempotent."""
