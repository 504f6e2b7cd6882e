"""Step n is told while step n + 1 is computed: one thread beside the engine's, and a meeting of the two each step.

The engine's thread posts what a step has to tell and goes on to plan and compute the next one, which needs the
committed tokens and the matchers, but neither text nor sinks. Before it commits, or ends any request, it joins. So at
most one step is untold, a sink that is slow slows the engine instead of filling the memory, and what the jobs touch has
one owner at any time: the teller from :meth:`Outbox.post` to :meth:`Outbox.join`, the engine's thread otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Job = Callable[[], None]


class Outbox:
    """Runs jobs in the order they were posted; without ``pipelined`` at once, on the thread that posts them."""

    def __init__(self, *, pipelined: bool) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="k7-teller") if pipelined else None
        self._posted: Future[None] | None = None

    def post(self, jobs: Sequence[Job]) -> None:
        """Hand over the jobs of one step; what was posted before must have been joined."""
        if self._posted is not None:
            raise RuntimeError("the step before was not joined")
        if not jobs:
            return
        if self._thread is None:
            _run(jobs)
        else:
            self._posted = self._thread.submit(_run, jobs)

    def join(self) -> None:
        """Wait until everything posted is done. What a job raised is raised here, once."""
        if self._posted is not None:
            posted, self._posted = self._posted, None
            posted.result()

    def close(self) -> None:
        if self._thread is not None:
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
