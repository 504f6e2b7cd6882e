"""The engine's turns: what is ended, attached, computed, committed and told, in this order.

One thread calls :meth:`Loop.turn` over and over, and owns matchers, slots, blocks and tokens. What a step has to tell
is told by another thread while the next step is planned and computed; the two meet before anything is committed or
ended (:mod:`heptagram_backend.outbox`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.errors import EngineError, HeptagramError, OverloadedError, contain
from heptagram_backend.measures import Measures
from heptagram_backend.outbox import Job, Outbox
from heptagram_backend.scheduler import Scheduler, Turn
from heptagram_backend.sequence import Sequence, State
from heptagram_backend.stats import EngineStats
from heptagram_backend.step import K7Step, Outcome
from heptagram_backend.teller import Teller
from heptagram_wire.events import FinishReason

_log = logging.getLogger(__name__)


class Loop:
    """Everything of the engine behind its inbox. ``forgotten`` is told each sequence that holds nothing any more; the
    last of it is told after that. ``max_deadline_ms`` bounds every request.
    """

    def __init__(
        self,
        *,
        step: K7Step,
        scheduler: Scheduler,
        grammars: GrammarCompiler,
        teller: Teller,
        outbox: Outbox,
        stats: EngineStats,
        measures: Measures,
        max_deadline_ms: int,
        forgotten: Callable[[Sequence], None],
    ) -> None:
        self._step = step
        self._scheduler = scheduler
        self._grammars = grammars
        self._teller = teller
        self._outbox = outbox
        self._stats = stats
        self._measures = measures
        self._max_deadline_ms = max_deadline_ms
        self._forgotten = forgotten

    def add(self, sequence: Sequence) -> None:
        """Take in a new sequence; a request's prompt counts once."""
        self._scheduler.add(sequence)
        self._stats.prompt_tokens += 0 if sequence.leader else sequence.prompt_tokens
        if sequence.request.constraint is not None:
            sequence.wait_for(self._grammars.start(sequence.request.constraint))

    def turn(self, drained_by: float) -> bool:
        """One turn; False when there was nothing to compute. From ``drained_by`` on all are cancelled."""
        self._end_cancelled_and_late(drained_by)
        self._attach_grammars()
        turn = self._scheduler.schedule()
        if turn:
            self._compute(turn)
        elif self._meet():
            return True  # what they held is free now
        stalled = self._scheduler.stalled(turn)
        if stalled is not None:
            self._fail(stalled, self._no_room())
        self._ping()
        return bool(turn)

    def fail_all(self) -> None:
        """What no smaller place contained ends every request, or their clients would hang."""
        error = EngineError("the engine failed while this request ran; send it again")
        try:
            self._outbox.join()
        except Exception:
            _log.exception("telling a step")
        for sequence in self._scheduler:
            try:
                self._forget(sequence, sound=False)
                self._teller.fail(sequence, error)
            except Exception:  # the others must be told all the same
                _log.exception("failing %s", sequence.name)

    def close(self) -> None:
        """Nothing runs any more; the last of the last step is told when this returns."""
        self._outbox.join()
        self._outbox.close()
        self._step.close()
        self._scheduler.check()

    def _meet(self) -> bool:
        """Wait until the last step is told, and end the requests that failed on the way; True if there were any."""
        self._outbox.join()
        failed = [(sequence, sequence.fault) for sequence in self._scheduler if sequence.fault is not None]
        for sequence, fault in failed:
            self._forget(sequence, sound=False)
            self._teller.fail(sequence, fault)
        return bool(failed)

    def _end_cancelled_and_late(self, drained_by: float) -> None:
        now = time.monotonic()
        for sequence in self._scheduler:
            if sequence.cancelled or now >= drained_by:
                self._finish(sequence, "cancelled")
            elif now >= self._deadline(sequence):
                self._finish(sequence, "deadline")

    def _deadline(self, sequence: Sequence) -> float:
        limit = self._max_deadline_ms
        return sequence.arrived + min(sequence.request.deadline_ms or limit, limit) / 1000

    def _attach_grammars(self) -> None:
        """Take matchers that are done; a constraint that does not compile fails before `start`."""
        for sequence in self._scheduler:
            pending = sequence.pending_grammar
            if pending is not None and pending.done():
                try:
                    sequence.attach(pending.result())
                except Exception as error:  # a grammar library's own fault must not end the engine
                    self._fail(sequence, contain(error, f"compiling the grammar of {sequence.name}"))
                    continue
            if not sequence.started and sequence.pending_grammar is None:
                self._teller.start(sequence)

    def _compute(self, turn: Turn) -> None:
        """Run ``turn``. A fault of what is shared, the forward above all, is narrowed to its request: each runs alone.

        Nothing was committed when a step raises, and cache rows are the same when they are written again. The step
        before is told under this one; whoever of ``turn`` ended by that is left out from there on.
        """
        now = time.monotonic()
        for sequence in turn.decode:
            sequence.stats.first_step = sequence.stats.first_step or now
        try:
            planned = self._step.plan(turn.decode, turn.chunks)
            if turn.decode:
                self._measures.planned(time.monotonic() - now)
            verdicts = self._step.compute(planned, turn.chunks, launched=self._outbox.start)
        except Exception as error:
            _log.exception("a turn of %d steps and %d chunks", len(turn.decode), len(turn.chunks))
            self._meet()
            self._retry_apart(turn, error)
            return
        self._meet()
        living = turn.living()
        for chunk in living.chunks:
            self._scheduler.advance(chunk)
        self._stats.steps += bool(living.decode)
        jobs: list[Job] = []
        try:
            jobs.extend(map(self._settled, self._step.commit(verdicts)))
        finally:  # whoever was forgotten before a fault must be told so
            self._outbox.post(jobs)

    def _retry_apart(self, turn: Turn, error: Exception) -> None:
        for sequence in turn.living().sequences if len(turn) == 1 else ():
            self._fail(sequence, contain(error, f"the step of {sequence.name}"))
        for part in turn.apart() if len(turn) > 1 else ():
            if living := part.living():
                self._compute(living)

    def _no_room(self) -> OverloadedError:
        pool = self._scheduler.pool
        return OverloadedError(
            f"nothing can go on with the {pool.free + pool.cached} of {pool.total} cache blocks that are available, so "
            "this request was given up; send it again"
        )

    def _settled(self, outcome: Outcome) -> Job:
        """What is left to tell of a step, when what its sequence held is free if it ended."""
        sequence, now = outcome.sequence, time.monotonic()
        self._measures.stepped(sequence, now)
        if outcome.error is not None:
            self._forget(sequence, sound=False)
            return partial(self._teller.fail, sequence, outcome.error)
        if outcome.reason is not None:
            self._measures.ended(sequence, now)
            self._forget(sequence)
            return partial(self._teller.finish, sequence, outcome.reason)
        return partial(self._teller.progress, sequence)

    def _ping(self) -> None:
        now = time.monotonic()
        if any(self._teller.silent(sequence, now) for sequence in self._scheduler):
            self._meet()
            for sequence in self._scheduler:
                if self._teller.silent(sequence, now):
                    self._teller.ping(sequence)

    # --- ends: the slot and the matcher are free before the client hears of it ---

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        if self._may_end(sequence):
            if reason != "cancelled":
                self._measures.ended(sequence, time.monotonic())
            self._forget(sequence)
            self._teller.finish(sequence, reason)

    def _fail(self, sequence: Sequence, error: HeptagramError) -> None:
        if self._may_end(sequence):
            self._forget(sequence, sound=False)
            self._teller.fail(sequence, error)

    def _may_end(self, sequence: Sequence) -> bool:
        """Meet the teller; False if ``sequence`` has ended by what it found."""
        self._meet()
        return sequence.state is not State.DONE

    def _forget(self, sequence: Sequence, *, sound: bool = True) -> None:
        self._scheduler.remove(sequence, sound=sound)
        self._forgotten(sequence)
        self._stats.close(sequence.stats)
