"""The engine: one thread that owns model, scheduler and every sequence.

Its turn is a numbered list: take in what callers said, end what is cancelled or late, attach grammars, ask the
scheduler what to compute, compute it, ping the silent. Callers only put notes into the inbox, so sinks, matchers,
slots and blocks are touched by one thread.
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

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.engine_api import EngineSnapshot, Sink
from heptagram_backend.errors import EngineError, HeptagramError, OverloadedError, ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.scheduler import Scheduler, Turn
from heptagram_backend.sequence import Sequence
from heptagram_backend.stats import EngineStats
from heptagram_backend.step import K7Step, Outcome
from heptagram_backend.targets.base import Target
from heptagram_backend.validate import InvalidOutputError
from heptagram_wire import errors as codes
from heptagram_wire.events import Event, Failure, Finish, FinishReason, Ping, Start

PING_SECONDS = 0.5
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
    ) -> None:
        self._target = target
        self._step = step
        self._scheduler = scheduler
        self._grammars = grammars
        self._make_sequence = make_sequence
        self._limits = limits
        self._wake = wake
        self._lock = threading.Lock()
        self._life = Life.OPEN
        self._drained_by = math.inf
        self._inbox: deque[Sequence] = deque()
        self._live: dict[str, Sequence] = {}
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="k7-engine", daemon=True)
        self._thread.start()

    # --- callers ---

    def submit(self, request: GenerationRequest, sink: Sink) -> str:
        self._check(request)
        try:
            sequence = self._make_sequence(secrets.token_hex(16), request, sink)
        except ReleaseError as error:  # a plan that no preprocess wrote names a format or drafts that are not there
            raise RequestError(str(error), code=codes.INVALID_REQUEST, param="plan") from error
        with self._lock:
            if self._life is not Life.OPEN:
                raise OverloadedError("this version is shutting down; send the request again", code=codes.DRAINING)
            if len(self._live) >= self._scheduler.slots.total + self._limits.max_queue_size:
                raise OverloadedError(self._full())
            self._live[sequence.id] = sequence
            self._inbox.append(sequence)
        self._wake.set()
        return sequence.id

    def cancel(self, id: str) -> bool:
        with self._lock:
            sequence = self._live.get(id)
        if sequence is None:
            return False
        sequence.cancelled = True
        self._wake.set()
        return True

    def snapshot(self) -> EngineSnapshot:
        stats, pool = self._stats, self._scheduler.pool
        return EngineSnapshot(
            running=self._scheduler.running,
            waiting=self._scheduler.waiting + len(self._inbox),
            slots_used=self._scheduler.slots.used,
            slots_total=self._scheduler.slots.total,
            blocks_held=pool.held,
            blocks_cached=pool.cached,
            blocks_total=pool.total,
            live_matchers=self._grammars.live,
            requests_finished=stats.finished,
            requests_failed=stats.failed,
            requests_cancelled=stats.cancelled,
            invalid_outputs=stats.invalid_outputs,
            prompt_tokens=stats.prompt_tokens,
            generated_tokens=stats.generated_tokens,
            draft_tokens=stats.draft_tokens,
            accepted_draft_tokens=stats.accepted_draft_tokens,
            steps=stats.steps,
            preemptions=self._scheduler.preemptions,
            prefix_hit_tokens=self._scheduler.prefix_hit_tokens,
            masked_rows=stats.masked_rows,
            mask_hits=stats.mask_hits,
            mask_bytes=stats.mask_bytes,
        )

    def close(self) -> None:
        with self._lock:
            if self._life is Life.OPEN:
                self._life = Life.DRAINING
                self._drained_by = time.monotonic() + self._limits.max_drain_ms / 1000
        self._wake.set()
        self._thread.join()
        self._grammars.close()

    def _check(self, request: GenerationRequest) -> None:
        if request.vocabulary is not None and request.vocabulary != self._limits.vocabulary:
            raise RequestError(
                "the prompt was encoded with another vocabulary than this version's; roll preprocess and generate "
                "together",
                code=codes.INVALID_REQUEST,
                param="plan",
            )
        if request.ignore_eos and (request.constraint or request.trigger):
            raise RequestError("a constrained answer ends where its constraint does; leave it out", param="ignore_eos")
        width = self._target.vocab_size
        if not request.prompt_ids or not all(0 <= token < width for token in request.prompt_ids):
            raise RequestError(f"needs one or more token ids from 0 to {width - 1}", param="prompt_ids")
        total = len(request.prompt_ids) + request.max_tokens
        if request.max_tokens < 1 or total > self._target.max_model_len:
            raise RequestError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.max_tokens} do not fit the context "
                f"of {self._target.max_model_len} tokens; shorten the prompt or lower max_tokens",
                code=codes.CONTEXT_LENGTH,
                param="max_tokens",
            )
        if not self._scheduler.can_ever_fit(total):
            pool = self._scheduler.pool
            raise RequestError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.max_tokens} do not fit the cache of "
                f"{pool.total} blocks of {pool.block_size} tokens; shorten the prompt or lower max_tokens",
                code=codes.CONTEXT_LENGTH,
                param="max_tokens",
            )

    def _full(self) -> str:
        running = self._scheduler.running
        return (
            f"{running} requests run and {len(self._live) - running} wait, which is what {self._scheduler.slots.total} "
            f"slots and max_queue_size {self._limits.max_queue_size} hold; try again later"
        )

    # --- the engine thread ---

    def _run(self) -> None:
        while True:
            try:
                busy = self._turn()
            except Exception:  # what no smaller place contained ends the requests, not the thread: clients would hang
                _log.exception("a turn of the engine")
                self._fail_all()
                busy = False
            if not self._live and self._life is Life.DRAINING:
                break
            if not busy:
                self._wake.wait(IDLE_WAIT_SECONDS)
                self._wake.clear()
        self._scheduler.check()
        self._life = Life.CLOSED

    def _turn(self) -> bool:
        """One turn; False when there was nothing to compute."""
        self._take_in()
        self._end_cancelled_and_late()
        self._attach_grammars()
        turn = self._scheduler.schedule()
        if turn:
            self._compute(turn)
        stalled = self._scheduler.stalled(turn)
        if stalled is not None:
            self._fail(stalled, self._no_room())
        self._ping()
        return bool(turn)

    def _fail_all(self) -> None:
        for sequence in self._scheduler:
            try:
                self._fail(sequence, EngineError("the engine failed while this request ran; send it again"))
            except Exception:  # its sink perhaps; the others must be told all the same
                _log.exception("failing %s", sequence.id)

    def _take_in(self) -> None:
        while self._inbox:
            sequence = self._inbox.popleft()
            self._scheduler.add(sequence)
            self._stats.prompt_tokens += sequence.prompt_tokens
            if sequence.request.constraint is not None:
                sequence.pending_grammar = self._grammars.start(sequence.request.constraint)

    def _end_cancelled_and_late(self) -> None:
        now = time.monotonic()
        for sequence in self._scheduler:
            if sequence.cancelled or now >= self._drained_by:
                self._finish(sequence, "cancelled")
            elif now >= self._deadline(sequence):
                self._finish(sequence, "deadline")

    def _deadline(self, sequence: Sequence) -> float:
        limit = self._limits.max_deadline_ms
        return sequence.arrived + min(sequence.request.deadline_ms or limit, limit) / 1000

    def _attach_grammars(self) -> None:
        """Take matchers that are done; a constraint that does not compile fails before `start`."""
        for sequence in self._scheduler:
            pending = sequence.pending_grammar
            if pending is not None and pending.done():
                try:
                    sequence.grammar = pending.result()
                except HeptagramError as error:
                    self._fail(sequence, error)
                    continue
                except Exception as error:  # a grammar library's own fault must not end the engine
                    _log.exception("compiling the grammar of %s", sequence.id)
                    self._fail(sequence, EngineError(f"the grammar could not be compiled ({type(error).__name__})"))
                    continue
                sequence.pending_grammar = None
            if not sequence.started and sequence.pending_grammar is None:
                self._send(sequence, [self._start(sequence)])

    def _compute(self, turn: Turn) -> None:
        """Run ``turn``. A fault of what is shared, the forward above all, is narrowed to its request: each runs alone.

        Nothing was committed when a step raises, and cache rows are the same when they are written again.
        """
        now = time.monotonic()
        for sequence in turn.decode:
            sequence.stats.first_step = sequence.stats.first_step or now
        try:
            outcomes = self._step.run(turn.decode, turn.chunks)
        except Exception as error:
            _log.exception("a turn of %d steps and %d chunks", len(turn.decode), len(turn.chunks))
            if len(turn) > 1:
                for part in turn.apart():
                    self._compute(part)
                return
            fault = _told(error)
            outcomes = [Outcome(sequence, error=fault) for sequence in turn.sequences]
        else:
            for chunk in turn.chunks:
                self._scheduler.advance(chunk)
        self._stats.steps += bool(turn.decode)
        for outcome in outcomes:
            self._settle(outcome)

    def _no_room(self) -> OverloadedError:
        pool = self._scheduler.pool
        return OverloadedError(
            f"nothing can go on with the {pool.free + pool.cached} of {pool.total} cache blocks that are available, so "
            "this request was given up; send it again"
        )

    def _settle(self, outcome: Outcome) -> None:
        sequence = outcome.sequence
        if outcome.error is not None:
            self._fail(sequence, outcome.error)
        elif outcome.reason is not None:
            self._finish(sequence, outcome.reason)
        else:
            self._send(sequence, sequence.emitter.take())

    def _ping(self) -> None:
        now = time.monotonic()
        for sequence in self._scheduler:
            if sequence.started and now - sequence.last_send >= PING_SECONDS:
                self._send(sequence, [Ping()])

    # --- ends: the slot and the matcher are free before the client hears of it ---

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        try:
            reason = sequence.emitter.finish(reason)
        except Exception as error:  # a parser's fault at the end is as much this request's alone as one before
            if not isinstance(error, HeptagramError):
                _log.exception("the end of %s", sequence.id)
            self._fail(sequence, _told(error))
            return
        self._forget(sequence)
        self._stats.cancelled += reason == "cancelled"
        self._stats.finished += reason != "cancelled"
        stats = sequence.stats
        last = Finish(reason, stats.usage(sequence.prompt_tokens), stats.wire())
        self._send(sequence, [*self._missing_start(sequence), *sequence.emitter.take(), last], final=True)

    def _fail(self, sequence: Sequence, error: HeptagramError) -> None:
        self._forget(sequence, sound=False)
        self._stats.failed += 1
        self._stats.invalid_outputs += isinstance(error, InvalidOutputError)
        if not sequence.started:
            sequence.sink.fail(error)
            return
        wire = error.wire
        failure = Failure(code=wire.code, message=wire.message, param=wire.param)
        self._send(sequence, [*sequence.emitter.take(), failure], final=True)

    def _forget(self, sequence: Sequence, *, sound: bool = True) -> None:
        self._scheduler.remove(sequence, sound=sound)
        with self._lock:
            del self._live[sequence.id]
        self._stats.generated_tokens += sequence.stats.generated
        self._stats.draft_tokens += sequence.stats.drafted
        self._stats.masked_rows += sequence.stats.masked_rows
        self._stats.mask_hits += sequence.stats.mask_hits
        self._stats.mask_bytes += sequence.stats.mask_bytes
        self._stats.accepted_draft_tokens += sum(n * steps for n, steps in enumerate(sequence.stats.histogram))

    def _start(self, sequence: Sequence) -> Start:
        sequence.started = True
        request = sequence.request
        return Start(sequence.id, request.model, self._limits.version, sequence.prompt_tokens, request.max_tokens)

    def _missing_start(self, sequence: Sequence) -> list[Event]:
        return [] if sequence.started else [self._start(sequence)]

    def _send(self, sequence: Sequence, events: list[Event], *, final: bool = False) -> None:
        if events:
            sequence.last_send = time.monotonic()
            sequence.sink.send(events, final=final)


def _told(error: Exception) -> HeptagramError:
    """What was not raised on purpose is told without its text."""
    if isinstance(error, HeptagramError):
        return error
    return EngineError(f"this request could not be computed ({type(error).__name__})")
