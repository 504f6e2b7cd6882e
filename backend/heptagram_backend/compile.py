"""Grammar compilation off the step loop: a matcher is asked for early and taken when it is there.

Two lanes: what is cheap never waits behind what is costly. XGrammar releases the interpreter while it compiles, so
neither lane keeps the engine's thread from running. What may be very costly is tried in a child process first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from heptagram_backend.constraint import ConstraintSpec, Grammar, GrammarFactory
from heptagram_backend.errors import EngineError, RequestError
from heptagram_backend.histogram import Distribution, Histogram
from heptagram_backend.trial import Trial, Verdicts
from heptagram_backend.trial.estimate import COSTLY, DOUBTFUL, Estimate, estimate

_CHEAP_WORKERS: Final = 2
_COSTLY_WORKERS: Final = 1
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    spec: ConstraintSpec
    prefix: bytes
    future: Future[Grammar]
    asked: float = field(default_factory=time.monotonic)


class GrammarCompiler:
    """Worker threads in front of a :class:`GrammarFactory`; ``ready`` is called whenever a matcher is done.

    Args:
        factory: compiles, each constraint once.
        ready: called from any thread.
        trial: tries what is doubtful; without one it is compiled here at once.
        vocabulary: tokens, for the estimate.
    """

    def __init__(
        self,
        factory: GrammarFactory,
        ready: Callable[[], None],
        trial: Trial | None = None,
        vocabulary: int = 0,
    ) -> None:
        self._factory = factory
        self._ready = ready
        self._trial = trial
        self._vocabulary = vocabulary
        self._verdicts = Verdicts()
        self._cheap = ThreadPoolExecutor(max_workers=_CHEAP_WORKERS, thread_name_prefix="grammar")
        self._costly = ThreadPoolExecutor(max_workers=_COSTLY_WORKERS, thread_name_prefix="costly-grammar")
        self._lock = Lock()
        self._open: set[Future[Grammar]] = set()
        self._seconds = Histogram(_SECONDS)

    @property
    def live(self) -> int:
        """Matchers that are not closed yet."""
        return self._factory.live

    @property
    def seconds(self) -> Distribution:
        """How long it took to get what was not compiled yet, waiting and trial included."""
        return self._seconds.take()

    def start(self, spec: ConstraintSpec, prefix: bytes = b"") -> Future[Grammar]:
        """Make a matcher of ``spec`` that already stands behind ``prefix``; a result not made yet can be cancelled."""
        future: Future[Grammar] = Future()
        with self._lock:
            self._open.add(future)
        future.add_done_callback(self._done)
        self._cheap.submit(self._contained, self._sort, _Job(spec, prefix, future))
        return future

    def close(self) -> None:
        if self._trial is not None:
            self._trial.close()  # 1. what is being tried ends at once
        for lane in (self._cheap, self._costly):
            lane.shutdown(wait=True, cancel_futures=True)  # 2. what is being compiled ends
        with self._lock:
            left = list(self._open)
        for future in left:  # 3. nobody waits for what was never begun
            future.cancel()

    def _done(self, future: Future[Grammar]) -> None:
        with self._lock:
            self._open.discard(future)
        self._ready()

    def _contained(self, work: Callable[[_Job], None], job: _Job) -> None:
        """Whatever goes wrong is told to the one who waits. A constraint that was refused is refused from now on."""
        try:
            if not job.future.cancelled():
                work(job)
        except BaseException as error:
            if isinstance(error, RequestError):
                self._verdicts.remember(job.spec.digest, error.wire)
            if job.future.running() or job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)

    def _sort(self, job: _Job) -> None:
        """Serve what is at hand, and see where the rest belongs."""
        if self._factory.holds(job.spec):
            self._make(job)
            return
        passed = self._verdicts.passed(job.spec.digest)
        cost = estimate(job.spec, self._vocabulary)
        if cost.work < COSTLY:
            self._make(job)
        elif passed or cost.work < DOUBTFUL or self._trial is None:
            self._costly.submit(self._contained, self._make, job)
        else:
            trial = self._trial
            self._costly.submit(self._contained, lambda job: self._try(job, trial, cost), job)

    def _try(self, job: _Job, trial: Trial, cost: Estimate) -> None:
        """Make it if it can be compiled within the limits; the one before may have been the same."""
        digest = job.spec.digest
        if not self._verdicts.passed(digest):
            refusal = trial.refusal(job.spec, cost.worst)
            if refusal is not None:
                raise RequestError(refusal.message, code=refusal.code, param=refusal.param)
            self._verdicts.remember(digest, None)
        self._make(job)

    def _make(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        fresh = not self._factory.holds(job.spec)
        grammar = self._factory.matcher(job.spec)
        if fresh:
            with self._lock:
                self._seconds.observe(time.monotonic() - job.asked)
        if job.prefix and not grammar.accept_text(job.prefix):
            grammar.close()
            raise EngineError("the trigger's grammar does not begin with the trigger")
        job.future.set_result(grammar)
