"""Step n is told while step n + 1 is computed: one thread beside the engine's, and a meeting of the two each step.

The engine's thread posts what a step has to tell, plans the next one, which needs the committed tokens and the matchers
but neither text nor sinks, and lets the telling start when the forward does. Before it commits, or ends any request, it
joins. So at most one step is untold, a sink that is slow slows the engine instead of filling the memory, and what the
jobs touch has one owner at any time: the teller from :meth:`Outbox.start` to :meth:`Outbox.join`, the engine's thread
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

Job = Callable[[], None]


class Outbox:
    """Runs jobs in the order they were posted: on ``thread`` once :meth:`start` says so, or else in :meth:`join`."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self._jobs: Sequence[Job] = ()
        self._started: Future[None] | None = None

    def post(self, jobs: Sequence[Job]) -> None:
        """Hand over the jobs of one step; what was posted before must have been joined."""
        if self._jobs or self._started is not None:
            raise RuntimeError("the step before was not joined")
        self._jobs = jobs

    def start(self) -> None:
        """Now this thread will be away for a while: before, the two would only wait for each other's Python."""
        if self._jobs:
            jobs, self._jobs = self._jobs, ()
            self._started = self._thread.submit(_run, jobs)

    def join(self) -> None:
        """Everything posted is done when this returns. What a job raised is raised here, once."""
        if self._started is not None:
            started, self._started = self._started, None
            started.result()
        jobs, self._jobs = self._jobs, ()
        _run(jobs)

    def close(self) -> None:
        self._thread.shutdown()


def _run(jobs: Sequence[Job]) -> None:
    """All of them, whatever one raises; the first fault comes out at the end."""
    faults = []
    for job in jobs:
        try:
            job()
        except Exception as error:
            faults.append(error)
    if faults:
        raise faults[0]
