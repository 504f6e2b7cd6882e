"""Compiling off the step loop: costly constraints are tried in a child, cheap ones never wait, nothing is left over."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import psutil
import pytest

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.errors import HeptagramError, OverloadedError, RequestError
from heptagram_backend.trial import Trial
from heptagram_backend.trial.setup import Setup
from heptagram_backend.xgrammar_impl import XGrammarFactory
from tests.children import child

TOKENS = [bytes([value]) for value in range(256)]
STOP = 256
WIDTH = 257
WAIT = 60


def setup(seconds: float = 30.0, memory: int = 1 << 30, cache: int = 256 << 20) -> Setup:
    return Setup([*TOKENS, None], WIDTH, [STOP], seconds, memory, cache)


def schema(value: Mapping[str, Any]) -> ConstraintSpec:
    return ConstraintSpec("json_schema", json.dumps(value))


def closed(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [], "additionalProperties": False, **more}


def bomb(objects: int = 60) -> ConstraintSpec:
    """Within every limit of a single schema (but for their number), and minutes of work."""
    counted = closed({f"p{place}": {"type": "string"} for place in range(64)}, minProperties=3, maxProperties=40)
    return schema(closed({f"o{place}": counted for place in range(objects)}))


def doubtful(text: str = "a") -> ConstraintSpec:
    """A recursive grammar of a caller: cheap in truth, but nobody can know."""
    return ConstraintSpec("ebnf", f'root ::= "{text}" | "(" root ")"')


class Counting(XGrammarFactory):
    """Counts compilations, and can hold one kind back as if it took its time."""

    def __init__(self) -> None:
        super().__init__([*TOKENS, None], WIDTH, [STOP])
        self.compiled: list[ConstraintSpec] = []
        self.slow: ConstraintSpec | None = None
        self.entered, self.go = threading.Event(), threading.Event()

    def _compile(self, spec: ConstraintSpec) -> Any:
        self.compiled.append(spec)
        if spec == self.slow:
            self.entered.set()
            assert self.go.wait(WAIT)
        return super()._compile(spec)


Make = Callable[..., GrammarCompiler]


@pytest.fixture
def factory() -> Counting:
    return Counting()


@pytest.fixture
def make(factory: Counting) -> Iterator[Make]:
    made: list[GrammarCompiler] = []

    def build(trial: Trial | None = None) -> GrammarCompiler:
        made.append(GrammarCompiler(factory, lambda: None, trial, WIDTH))
        return made[-1]

    yield build
    factory.go.set()
    for compiler in made:
        compiler.close()
    assert factory.live == 0
    assert not psutil.Process().children()


def taken(pending: Future[Grammar]) -> None:
    pending.result(WAIT).close()


def refused(pending: Future[Grammar]) -> HeptagramError:
    with pytest.raises(HeptagramError) as caught:
        taken(pending)
    return caught.value


def test_what_is_cheap_needs_no_child(make: Make) -> None:
    trial = Trial(setup())
    taken(make(trial).start(schema(closed({"a": {"type": "string", "maxLength": 100}, "b": {"type": "integer"}}))))
    assert trial.pid is None


def test_what_is_doubtful_is_tried_once_and_then_compiled(make: Make, factory: Counting) -> None:
    trial = Trial(setup())
    compiler = make(trial)
    taken(compiler.start(doubtful()))
    first = trial.pid
    assert first is not None
    factory.forget()  # as if others had taken its place in the cache
    os.kill(first, signal.SIGKILL)
    while trial.pid is not None:
        threading.Event().wait(0.01)
    taken(compiler.start(doubtful()))
    assert trial.pid is None  # it was not asked again
    taken(compiler.start(doubtful("b")))
    assert trial.pid not in (None, first)
    assert factory.compiled == [doubtful(), doubtful(), doubtful("b")]


def test_the_limit_of_time_holds_where_the_server_blocks_its_signal() -> None:
    """Else the lane waits for the limit of wall time, and the caller is told to send it again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
    try:
        trial = Trial(setup(seconds=0.5))
        refusal = trial.refusal(bomb(), "the size of the schemas")
        trial.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert refusal is not None
    assert "more than 0.5 s of processor time" in refusal.message


def test_a_bomb_ends_its_child_and_is_refused_at_once_the_second_time(make: Make, factory: Counting) -> None:
    trial = Trial(setup(seconds=0.5))
    compiler = make(trial)
    taken(compiler.start(doubtful()))
    first = trial.pid
    assert first is not None
    error = refused(compiler.start(bomb()))
    assert error.wire.code == "grammar_too_costly"
    assert "more than 0.5 s of processor time" in error.wire.message
    assert "`minProperties` and `maxProperties`; leave them out" in error.wire.message
    assert not psutil.pid_exists(first)
    second = trial.pid
    assert second is not None  # it waits for the next one
    assert refused(compiler.start(bomb())).wire == error.wire
    assert trial.pid == second
    assert bomb() not in factory.compiled
    taken(compiler.start(doubtful("b")))
    assert trial.pid == second


def test_what_takes_too_much_memory_is_refused(make: Make, factory: Counting) -> None:
    error = refused(make(Trial(setup(memory=4 << 20))).start(bomb(20)))
    assert error.wire.code == "grammar_too_costly"
    assert "more than 4 MiB of memory" in error.wire.message
    assert not factory.compiled


def test_what_would_not_fit_the_cache_is_refused(make: Make, factory: Counting) -> None:
    error = refused(make(Trial(setup(cache=100))).start(doubtful()))
    assert error.wire.code == "grammar_too_costly"
    assert not factory.compiled


def test_an_error_of_the_constraint_comes_through_the_child_and_is_remembered(make: Make, factory: Counting) -> None:
    trial = Trial(setup())
    compiler = make(trial)
    endless = ConstraintSpec("ebnf", 'root ::= "a" root')
    error = refused(compiler.start(endless))
    assert isinstance(error, RequestError)
    assert error.wire.code == "unsupported_schema"
    assert refused(compiler.start(endless)).wire == error.wire
    assert not factory.compiled


def test_a_cheap_one_that_is_refused_is_compiled_once(make: Make, factory: Counting) -> None:
    compiler = make()
    endless = schema({"$ref": "#"})
    assert refused(compiler.start(endless)).wire == refused(compiler.start(endless)).wire
    assert factory.compiled == [endless]


def test_the_same_constraint_again_compiles_nothing(make: Make, factory: Counting) -> None:
    compiler = make()
    for _ in range(3):
        taken(compiler.start(schema(closed({"a": {"type": "string"}}))))
    assert len(factory.compiled) == 1


def test_cheap_ones_pass_a_costly_one(make: Make, factory: Counting) -> None:
    compiler = make()
    factory.slow = costly = schema({"enum": [f"{place:040}" for place in range(1_200)]})
    slow = compiler.start(costly)
    assert factory.entered.wait(WAIT)
    again = compiler.start(costly)
    for place in range(5):
        taken(compiler.start(schema({"const": place})))
    assert not slow.done()
    assert not again.done()
    factory.go.set()
    taken(slow)
    taken(again)
    assert factory.compiled.count(costly) == 1


def test_cheap_ones_pass_one_that_is_being_tried(make: Make) -> None:
    compiler = make(Trial(setup(seconds=300)))
    pending = compiler.start(bomb())
    taken(compiler.start(schema({"const": 1})))
    assert not pending.done()
    compiler.close()  # in the middle of the compile: nobody waits for its end
    error = refused(pending)
    assert isinstance(error, OverloadedError)
    assert error.wire.code == "draining"


def test_a_cancelled_one_is_not_made(make: Make, factory: Counting) -> None:
    compiler = make()
    factory.slow = costly = schema({"enum": [f"{place:040}" for place in range(1_200)]})
    slow = compiler.start(costly)
    assert factory.entered.wait(WAIT)
    behind = compiler.start(schema({"enum": [f"{place:039}" for place in range(1_200)]}))
    assert behind.cancel()
    factory.go.set()
    taken(slow)
    last = compiler.start(schema({"enum": [f"{place:038}" for place in range(1_200)]}))
    taken(last)
    assert len(factory.compiled) == 2


def test_closing_tells_those_who_wait(make: Make, factory: Counting) -> None:
    compiler = make()
    factory.slow = costly = schema({"enum": [f"{place:040}" for place in range(1_200)]})
    slow = compiler.start(costly)
    assert factory.entered.wait(WAIT)
    queued = compiler.start(costly)
    closing = threading.Thread(target=compiler.close)
    closing.start()
    factory.go.set()
    closing.join(WAIT)
    taken(slow)
    assert queued.cancelled() or queued.exception() is None
    if not queued.cancelled():
        taken(queued)


def test_a_child_that_does_not_start_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heptagram_backend.trial.process._PROGRAM", "heptagram_backend.no_such_program")
    error = refused(make(Trial(setup())).start(doubtful()))
    assert error.wire.code == "internal"
    assert "did not start" in error.wire.message


def test_nothing_is_left_of_a_child() -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    for _ in range(2):
        trial = Trial(setup(seconds=0.3))
        assert trial.refusal(doubtful(), "the size of the schemas") is None
        assert trial.refusal(bomb(), "the size of the schemas") is not None
        trial.close()
        trial.close()
    assert not psutil.Process().children()
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_a_child_ends_with_its_parent() -> None:
    """In the middle of a compile, and however the parent ends."""
    program = (
        "import sys, threading, time\n"
        "from heptagram_backend.constraint import ConstraintSpec\n"
        "from heptagram_backend.trial import Trial\n"
        "from heptagram_backend.trial.setup import Setup\n"
        "trial = Trial(Setup([bytes([value]) for value in range(256)] + [None], 257, [256], 300, 1 << 30, 1 << 28))\n"
        "assert trial.refusal(ConstraintSpec('json_schema', '{}'), '') is None\n"
        "bomb = ConstraintSpec('json_schema', sys.argv[1])\n"
        "threading.Thread(target=trial.refusal, args=(bomb, ''), daemon=True).start()\n"
        "print(trial.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    with child([sys.executable, "-c", program, bomb(20).source], stderr=None) as parent:
        assert parent.stdout is not None
        trial = psutil.Process(int(parent.stdout.readline()))
        busy = trial.cpu_times().user
        while trial.cpu_times().user < busy + 0.2:
            threading.Event().wait(0.05)
    trial.wait(WAIT)
