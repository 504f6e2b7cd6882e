"""The engine as its callers see it, so that Triton glue and engines change independently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.histogram import Distribution
from heptagram_wire.events import Event

CancelCause = Literal["client", "stop", "deadline", "drain"]
"""Who ended a request: its client left or asked for its stop, its time was over, or the engine closes."""


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
    grammar, ``mask_hits`` lay on the device already; ``mask_bytes`` were uploaded for the others.

    ``draft_tokens`` were verified. ``accepted_by_place`` counts the ``accepted_draft_tokens`` among them by their place
    in the step, from 0, and ``forced_tokens`` those that were a grammar's forced text. ``replaced_tokens`` stood where
    a grammar had refused another draft. What was drafted beyond is in ``cut_tokens``, by what cut it.

    ``finished`` is by reason, ``failed`` by code, ``cancelled`` by cause, ``distributions`` by the fields of
    :data:`heptagram_backend.metric_table.HISTOGRAMS`."""

    running: int
    waiting: int
    slots_used: int
    slots_total: int
    live_matchers: int
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
    forced_tokens: int = 0
    replaced_tokens: int = 0
    mask_pool_used: int = 0
    mask_pool_total: int = 0
    graph_misses: int = 0
    finished: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    cancelled: Mapping[str, int] = field(default_factory=dict)
    accepted_by_place: Mapping[str, int] = field(default_factory=dict)
    cut_tokens: Mapping[str, int] = field(default_factory=dict)
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def requests_finished(self) -> int:
        return sum(self.finished.values())

    @property
    def requests_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def requests_cancelled(self) -> int:
        return sum(self.cancelled.values())

    @property
    def blocks_free(self) -> int:
        return self.blocks_total - self.blocks_held - self.blocks_cached

    @property
    def kv_cache_usage(self) -> float:
        return self.blocks_held / self.blocks_total if self.blocks_total else 0.0


class Engine(Protocol):
    def submit(self, request: GenerationRequest, sink: Sink) -> str:
        """Queue a request; returns at once with its unguessable id. Output and errors then go to ``sink``.

        Raises:
            RequestError: the request can never run here (prompt too long, another vocabulary).
            OverloadedError: the queue is full, or the engine is draining.
        """

    def cancel(self, id: str, cause: CancelCause = "stop") -> bool:
        """End a request at the next step; its sink gets ``finish`` with reason ``cancelled``. False if unknown."""

    def snapshot(self) -> EngineSnapshot: ...

    def close(self) -> None:
        """Finish what runs within a bound, cancel the rest, refuse what comes, release everything; idempotent."""
