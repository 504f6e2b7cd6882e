"""Grammar compilation off the step loop: a matcher is asked for early and taken when it is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from heptagram_backend.constraint import ConstraintSpec, Grammar, GrammarFactory
from heptagram_backend.errors import EngineError


class GrammarCompiler:
    """One worker thread in front of a :class:`GrammarFactory`; ``ready`` is called whenever a matcher is done."""

    def __init__(self, factory: GrammarFactory, ready: Callable[[], None]) -> None:
        self._factory = factory
        self._ready = ready
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    @property
    def live(self) -> int:
        """Matchers that are not closed yet."""
        return self._factory.live

    def start(self, spec: ConstraintSpec, prefix: bytes = b"") -> Future[Grammar]:
        """Make a matcher of ``spec`` that already stands behind ``prefix``."""
        future = self._executor.submit(self._make, spec, prefix)
        future.add_done_callback(lambda _: self._ready())
        return future

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _make(self, spec: ConstraintSpec, prefix: bytes) -> Grammar:
        grammar = self._factory.matcher(spec)
        if prefix and not grammar.accept_text(prefix):
            grammar.close()
            raise EngineError("the trigger's grammar does not begin with the trigger")
        return grammar
