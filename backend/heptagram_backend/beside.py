"""Work beside the engine's thread. On the CPU too: what a forward computes outside Python lets other threads run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


def beside(name: str, *, pipelined: bool) -> Executor:
    """A thread of its own, in order; without ``pipelined`` the thread that submits, before it goes on."""
    return ThreadPoolExecutor(1, thread_name_prefix=name) if pipelined else _AtOnce()


class _AtOnce(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
