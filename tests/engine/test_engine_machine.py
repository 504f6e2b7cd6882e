"""The whole engine in any order of events: every request ends exactly once, with its own tokens, and nothing is left.

Its thread runs, but a forward only goes on when a rule says so: what callers do falls into any step, while its masks
are filled and the step before it is told, or between two. Drafts, masks and sends fail too, each for one request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import HeptagramError, OverloadedError
from heptagram_backend.generation import DraftSource
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.base import PromptRows
from heptagram_wire.events import Event, Failure, Finish, Ping, Start
from tests.engine.harness import EOS, tiny_parts
from tests.engine.test_paging import DRAFTS, WHOLE, Target, mixed_requests, opens

KINDS = 9
FAULTY = ("draft", "mask", "send")


class Stepped(Target):
    """Each forward waits for a permit."""

    def __init__(self, *, blocks: int, slots: int) -> None:
        super().__init__(opens, blocks=blocks, slots=slots)
        self.permits = threading.Semaphore(0)
        self.free = threading.Event()

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        while not self.free.is_set() and not self.permits.acquire(timeout=0.05):
            pass
        return super().mixed(token_ids, positions, slots, prompts)


@dataclass
class Ends:
    """A sink that counts ends, where an assertion of its own would be taken for a fault of the request."""

    kind: int
    n: int = 1
    fault: Callable[[], None] = lambda: None
    events: list[Event] = field(default_factory=list)
    ends: int = 0
    late: int = 0

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        self.late += bool(self.ends)
        self.events.extend(events)
        self.ends += final
        if not final and not isinstance(events[0], Start | Ping):
            self.fault()

    def fail(self, error: HeptagramError) -> None:
        raise AssertionError(error)  # no request of these fails

    def tokens_of(self, choice: int) -> tuple[int, ...]:
        mine = [event for event in self.events if event.choice == choice]
        return tuple(token for event in mine for token in getattr(event, "token_ids", None) or ())


def start(target: Stepped, *, caching: bool = True, pipelined: bool = True) -> K7Engine:
    options = EngineOptions(
        mask_pool_rows=128,
        max_num_seqs=4,
        max_num_batched_tokens=72,
        enable_prefix_caching=caching,
        pipelined=pipelined,
    )
    parts = tiny_parts(target, scripts={"scripted": hostile}, options=options)
    return assemble(parts, EngineLimits("7", 96, 60_000, "tiny"))


def hostile(tokens: Sequence[int], limit: int) -> list[int]:
    """Drafts of ends, control tokens and text that is never right for long."""
    choices = (EOS, EOS - 1, tokens[-1], (tokens[-1] * 31 + len(tokens)) % 256, opens(tuple(tokens)))
    return [choices[(len(tokens) + step) % len(choices)] for step in range(limit)]


@cache
def alone() -> tuple[tuple[int, ...], ...]:
    """The tokens of each kind of request that has the engine for itself, without drafts."""
    target = Stepped(blocks=4 * WHOLE, slots=4)
    target.free.set()
    engine = start(target)
    answers = []
    for kind, request in enumerate(mixed_requests("none")):
        sink = Ends(kind)
        engine.submit(request, sink)
        while not sink.ends:
            threading.Event().wait(0.002)
        answers.append(sink.tokens_of(0))
    engine.close()
    return tuple(answers)


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        blocks=st.integers(WHOLE, 2 * WHOLE), slots=st.integers(1, 4), caching=st.booleans(), pipelined=st.booleans()
    )
    def begin(self, blocks: int, slots: int, caching: bool, pipelined: bool) -> None:
        self.target = Stepped(blocks=blocks, slots=slots)
        self.engine = start(self.target, caching=caching, pipelined=pipelined)
        self.sinks: dict[str, Ends] = {}
        self.stopped: set[str] = set()
        self.faults = {place: threading.Semaphore(0) for place in FAULTY}
        self.failed = 0
        self.closed = False
        planner = self.engine._loop._step._planner
        for place in ("draft", "mask"):
            setattr(planner, place, self._faulty(place, getattr(planner, place)))

    def _faulty(self, place: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, or one of the faults that are due at ``place``."""

        def run(*arguments: Any) -> Any:
            if self.faults[place].acquire(blocking=False):
                self.failed += 1
                raise RuntimeError(f"a fault of the {place}")
            return work(*arguments)

        return run

    @rule(
        kind=st.integers(0, KINDS - 1),
        drafts=st.sampled_from([*DRAFTS, "scripted"]),
        count=st.sampled_from([0, 3, 7]),
        n=st.sampled_from([1, 1, 3]),
        deadline_ms=st.sampled_from([None, None, 1, 20]),
    )
    def submit(self, kind: int, drafts: DraftSource, count: int, n: int, deadline_ms: int | None) -> None:
        request = replace(mixed_requests(drafts)[kind], num_speculative_tokens=count, deadline_ms=deadline_ms, n=n)
        sink = Ends(kind, n, self._faulty("send", lambda: None))
        if self.closed:
            with pytest.raises(OverloadedError, match="shutting down"):
                self.engine.submit(request, sink)
            return
        id = self.engine.submit(request, sink)
        self.sinks[id] = sink
        if deadline_ms is not None:
            self.stopped.add(id)

    @precondition(lambda self: not self.closed)
    @rule(place=st.sampled_from(FAULTY))
    def fault(self, place: str) -> None:
        self.faults[place].release()

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        self.target.permits.release(steps)

    @precondition(lambda self: self.sinks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.sinks)))
        self.engine.cancel(id)  # perhaps a second time, or of one that has ended
        self.stopped.add(id)

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.target.free.set()
        self.engine.close()
        for id, sink in self.sinks.items():
            self._ended(id, sink)
        seen = self.engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers, seen.blocks_held) == (0, 0, 0, 0, 0)
        failures = [sink for sink in self.sinks.values() if isinstance(sink.events[-1], Failure)]
        assert seen.requests_failed == len(failures) <= self.failed
        assert seen.requests_finished + seen.requests_cancelled + len(failures) == len(self.sinks)
        assert not any(thread.name.startswith(("k7-teller", "k7-masks")) for thread in threading.enumerate())

    @invariant()
    def at_most_one_end(self) -> None:
        for sink in getattr(self, "sinks", {}).values():
            assert sink.ends <= 1
            assert not sink.late, "something came behind the end"

    def _ended(self, id: str, sink: Ends) -> None:
        assert sink.ends == 1, "a request was lost"
        [finish] = [event for event in sink.events if isinstance(event, Finish | Failure)]
        whole = alone()[sink.kind]
        for choice in range(sink.n):
            tokens = sink.tokens_of(choice)
            if isinstance(finish, Failure):
                assert tokens == whole[: len(tokens)]
            elif finish.reason in ("cancelled", "deadline"):
                assert id in self.stopped
                assert tokens == whole[: len(tokens)]
            else:
                assert tokens == whole

    def teardown(self) -> None:
        if hasattr(self, "engine") and not self.closed:
            self.close()


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
