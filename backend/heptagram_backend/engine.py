"""The engine as its callers see it: what is taken in, and one thread that turns until all of it has ended.

Callers only put notes into the inbox; everything behind it is the thread's (:mod:`heptagram_backend.loop`).
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from heptagram_backend.admission import Admission
from heptagram_backend.beside import beside
from heptagram_backend.choices import make_choices
from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.ends import CountedSink
from heptagram_backend.engine_api import CancelCause, EngineSnapshot, Sink
from heptagram_backend.errors import OverloadedError, ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.loop import Loop
from heptagram_backend.measures import Measures
from heptagram_backend.outbox import Outbox
from heptagram_backend.scheduler import Scheduler
from heptagram_backend.sequence import Sequence
from heptagram_backend.snapshot import take_snapshot
from heptagram_backend.stats import EngineStats
from heptagram_backend.step import K7Step
from heptagram_backend.targets.base import Target
from heptagram_backend.teller import Teller
from heptagram_wire import errors as codes

IDLE_WAIT_SECONDS = 0.25

_log = logging.getLogger(__name__)


class Life(Enum):
    OPEN = auto()
    DRAINING = auto()  # what was taken in is finished within a bound, nothing new is
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What this version takes. ``vocabulary`` is the tokenizer's hash, which a plan must have been encoded with.

    ``max_drain_ms`` bounds :meth:`K7Engine.close`; what still runs then is cancelled.
    """

    version: str
    max_queue_size: int
    max_deadline_ms: int
    vocabulary: str
    max_drain_ms: int = 120_000


class K7Engine:
    """Continuous batching over K7 steps; implements :class:`heptagram_backend.engine_api.Engine`.

    ``wake`` is set by whatever gives the thread something to do; the grammar compiler sets it too.
    Without ``pipelined`` a step is told before the next one is planned; what is told is the same.
    """

    def __init__(
        self,
        *,
        target: Target,
        step: K7Step,
        scheduler: Scheduler,
        grammars: GrammarCompiler,
        make_sequence: Callable[[str, GenerationRequest, Sink], Sequence],
        limits: EngineLimits,
        wake: threading.Event,
        pipelined: bool,
    ) -> None:
        self._scheduler = scheduler
        self._grammars = grammars
        self._make_sequence = make_sequence
        self._limits = limits
        self._wake = wake
        self._lock = threading.Lock()
        self._life = Life.OPEN
        self._drained_by = math.inf
        self._inbox: deque[Sequence] = deque()
        self._live: set[Sequence] = set()
        self._step = step
        self._stats = EngineStats()
        self._measures = Measures()
        self._capacity = scheduler.slots.total + limits.max_queue_size
        self._admission = Admission(target, scheduler, limits.vocabulary, self._capacity)
        self._loop = Loop(
            step=step,
            scheduler=scheduler,
            grammars=grammars,
            teller=Teller(limits.version),
            outbox=Outbox(beside("k7-teller", pipelined=pipelined)),
            stats=self._stats,
            measures=self._measures,
            max_deadline_ms=limits.max_deadline_ms,
            forgotten=self._forgotten,
        )
        self._thread = threading.Thread(target=self._run, name="k7-engine", daemon=True)
        self._thread.start()

    # --- callers ---

    def submit(self, request: GenerationRequest, sink: Sink) -> str:
        self._admission.check(request)
        try:
            counted = CountedSink(sink, self._stats)
            sequences = make_choices(self._make_sequence, secrets.token_hex(16), request, counted)
        except ReleaseError as error:  # a plan that no preprocess wrote names a format or drafts that are not there
            raise RequestError(str(error), code=codes.INVALID_REQUEST, param="plan") from error
        for sequence in sequences:
            sequence.ends = counted
        with self._lock:
            if self._life is not Life.OPEN:
                raise OverloadedError("this version is shutting down; send the request again", code=codes.DRAINING)
            if len(self._live) + len(sequences) > self._capacity:
                raise OverloadedError(self._full())
            self._live.update(sequences)
            self._inbox.extend(sequences)
        self._wake.set()
        return sequences[0].id

    def cancel(self, id: str, cause: CancelCause = "stop") -> bool:
        with self._lock:
            found = [sequence for sequence in self._live if sequence.id == id]
        for sequence in found:
            if sequence.ends is not None and not sequence.cancelled:
                sequence.ends.cause = cause
            sequence.cancelled = True
        self._wake.set()
        return bool(found)

    def snapshot(self) -> EngineSnapshot:
        return take_snapshot(
            self._stats, self._measures, self._scheduler, self._grammars, self._step, arriving=len(self._inbox)
        )

    def close(self) -> None:
        with self._lock:
            if self._life is Life.OPEN:
                self._life = Life.DRAINING
                self._drained_by = time.monotonic() + self._limits.max_drain_ms / 1000
        self._wake.set()
        self._thread.join()
        self._grammars.close()

    def _full(self) -> str:
        running = self._scheduler.running
        return (
            f"{running} requests run and {len(self._live) - running} wait, which is what {self._scheduler.slots.total} "
            f"slots and max_queue_size {self._limits.max_queue_size} hold; try again later"
        )

    def _forgotten(self, sequence: Sequence) -> None:
        with self._lock:
            self._live.remove(sequence)

    # --- the engine thread ---

    def _run(self) -> None:
        while True:
            try:
                while self._inbox:
                    self._loop.add(self._inbox.popleft())
                busy = self._loop.turn(self._drained_by)
            except Exception:  # what no smaller place contained ends the requests, not the thread: clients would hang
                _log.exception("a turn of the engine")
                self._loop.fail_all()
                busy = False
            if not self._live and self._life is Life.DRAINING:
                break
            if not busy:
                self._wake.wait(IDLE_WAIT_SECONDS)
                self._wake.clear()
        self._loop.close()
        self._life = Life.CLOSED
