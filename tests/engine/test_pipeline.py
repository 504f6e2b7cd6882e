"""A step is told while the next one is computed: it really is, what comes out is the same, and faults stay apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from heptagram_backend.beside import beside
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.emit import Emitter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.generation import GenerationRequest, OutputSpec, SamplingParams, Trigger
from heptagram_backend.outbox import Outbox
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.xgrammar_impl import XGrammarMatcher
from heptagram_wire.events import CallStart, Event, Failure, Finish, Ping, Start
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_parts, until

PLAIN = OutputSpec("chatml_json")
CALLS = OutputSpec("chatml_json", parse_calls=True)
CALL = ConstraintSpec(
    "ebnf",
    'root ::= "<tool_call>\\n{\\"name\\": \\"tool\\", \\"arguments\\": {\\"a\\": " [1-9] [0-9]? "}}\\n</tool_call>"',
)
MODES = [pytest.param(True, id="pipelined"), pytest.param(False, id="in turn")]


def says(tokens: tuple[int, ...]) -> int:
    """A pure function of the tokens: letters and digits, now and then the end of the answer, opened calls and words."""
    place = sum(tokens) * 31 + len(tokens)
    if place % 61 == 7:
        return EOS
    if place % 23 == 5:
        return tiny_encode("<tool_call>")[0]
    return tiny_encode("the tool abcdefgh12345")[place % 14]


class GatedTarget(ScriptedTarget):
    """Counts the forwards that began; each waits at ``gate``."""

    def __init__(self, script: Callable[[tuple[int, ...]], int] = says, *, slots: int = 4) -> None:
        super().__init__(script, vocab_size=288, num_slots=slots, max_model_len=256)
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def forward(self, *arguments: Any) -> Any:
        self.begun.release()
        assert self.gate.wait(20)
        return super().forward(*arguments)


class Alone(Collector):
    """A sink that is never called by two threads at once, and is told one end; ``slow`` is its time for a send."""

    def __init__(self, slow: float = 0.0) -> None:
        super().__init__()
        self.sends: list[list[Event]] = []
        self.wrong: list[str] = []
        self._slow = slow
        self._inside = threading.Lock()

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        if not self._inside.acquire(blocking=False):
            self.wrong.append("two threads at once")
            return
        try:
            time.sleep(self._slow)
            if self.done.is_set():
                self.wrong.append("something after the end")
            self.sends.append(list(events))
            super().send(events, final=final)
        finally:
            self._inside.release()


Make = Callable[..., K7Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[K7Engine] = []

    def make(target: ScriptedTarget | None = None, *, pipelined: bool = True, drain_ms: int = 60_000) -> K7Engine:
        # What is drafted, and so what a step tells, must not follow the machine's times here.
        options = EngineOptions(mask_pool_rows=128, pipelined=pipelined, draft_width="full")
        parts = tiny_parts(target or GatedTarget(), options=options)
        made.append(assemble(parts, EngineLimits("7", 64, 60_000, "tiny", drain_ms)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
        seen = engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers) == (0, 0, 0, 0)


def request(prompt: str = "prompt: ", **changes: Any) -> GenerationRequest:
    return replace(GenerationRequest(tuple(tiny_encode(prompt)), PLAIN, "tiny", max_tokens=60), **changes)


ENDLESS = request(ignore_eos=True, num_speculative_tokens=0)


def test_each_step_is_told_under_the_next_one(make: Make) -> None:
    """A sink that returns only when the next forward has begun: without the overlap it waits in vain."""
    target = GatedTarget()

    class Waiting(Alone):
        def send(self, events: Sequence[Event], *, final: bool) -> None:
            if not isinstance(events[0], Start) and not final and not target.begun.acquire(timeout=10):
                self.wrong.append("nothing was computed meanwhile")
            super().send(events, final=final)

    sink = Waiting()
    engine = make(target)
    target.gate.clear()
    engine.submit(replace(ENDLESS, max_tokens=12), sink)
    assert target.begun.acquire(timeout=10)  # the first step has nothing before it
    target.gate.set()
    assert sink.done.wait(20)
    assert sink.wrong == []
    assert len(sink.sends) == 1 + 12


def test_telling_starts_between_the_inputs_and_the_forward(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it would only take turns with the loading; the forward leaves Python to others."""
    order: list[str] = []
    target = GatedTarget()
    engine = make(target)
    step, outbox = engine._loop._step, engine._loop._outbox

    def recorded(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*arguments: Any) -> Any:
            order.append(name)
            return act(*arguments)

        return acting

    monkeypatch.setattr(step._inputs, "load", recorded("load", step._inputs.load))
    monkeypatch.setattr(step, "_forward", recorded("forward", step._forward))
    monkeypatch.setattr(outbox, "start", recorded("tell", outbox.start))
    sink = Collector()
    engine.submit(request(), sink)
    assert sink.done.wait(20)
    assert len(order) > 9
    assert order == ["load", "tell", "forward"] * (len(order) // 3)


def _mixed() -> list[GenerationRequest]:
    digits = ConstraintSpec("regex", "[a-h]{3}[0-9]{2,30}")
    low = {"tool": {"type": "object", "properties": {"a": {"maximum": 3}}}}
    return [
        request("plain"),
        request("numbers", constraint=digits, return_token_ids=True),
        request("stop", stop=("e t", "5")),
        request("stop in a burst", stop=("b", "x"), ignore_eos=True),
        request("once", output=CALLS, constraint=CALL),
        request("triggered", output=CALLS, trigger=Trigger("<tool_call>", CALL), max_tokens=100),
        request("broken schema", output=replace(CALLS, schemas=low), trigger=Trigger("<tool_call>", CALL)),
        request("broken answer", output=replace(PLAIN, answer={"type": "integer"})),
        request("scores", logprobs=2, return_token_ids=True, num_speculative_tokens=0),
        request("sampled", sampling=SamplingParams(temperature=1.0, seed=7), ignore_eos=True, max_tokens=30),
        request("short", max_tokens=1),
        request("endless", ignore_eos=True),
    ]


def _comparable(sink: Alone) -> list[list[Any]]:
    """What was sent, send by send, without what differs from run to run: ids, costs, and signs of life."""

    def same(event: Event) -> Any:
        match event:
            case Start() | CallStart():
                return replace(event, id="")
            case Finish():
                return event.reason, event.usage, event.stats.steps, event.stats.speculative_decoding
        return event

    return [[same(event) for event in events] for events in sink.sends if not isinstance(events[0], Ping)]


@pytest.mark.parametrize("slow", [0.0, 0.003])
def test_the_same_is_told_in_the_same_sends(make: Make, monkeypatch: pytest.MonkeyPatch, slow: float) -> None:
    feed = Detokenizer.feed

    def slowly(self: Detokenizer, token: int) -> str:
        time.sleep(slow / 8)
        return feed(self, token)

    monkeypatch.setattr(Detokenizer, "feed", slowly)
    told = []
    for pipelined in (True, False):
        engine = make(pipelined=pipelined)
        sinks = [Alone(slow) for _ in _mixed()]
        for wanted, sink in zip(_mixed(), sinks, strict=True):
            engine.submit(wanted, sink)
        assert all(sink.done.wait(60) for sink in sinks)
        assert [sink.wrong for sink in sinks] == [[]] * len(sinks)
        told.append([_comparable(sink) for sink in sinks])
    assert told[0] == told[1]
    ends = [sends[-1][-1] for sends in told[0]]
    assert {type(end) for end in ends} == {tuple, Failure}


def test_a_parser_that_fails_under_the_next_forward_harms_its_request_only(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = GatedTarget()
    engine = make(target)
    expected = Alone()
    engine.submit(ENDLESS, expected)
    assert expected.done.wait(20)

    push, raised = Emitter.push, threading.Event()

    def faulty(self: Emitter, token: int, scored: Any = None) -> None:
        if self is broken and bad.sends[1:]:
            raised.set()
            raise RuntimeError("a fault of the parser")
        push(self, token, scored)

    monkeypatch.setattr(Emitter, "push", faulty)
    target.gate.clear()
    bad, good = Alone(), Alone()
    engine.submit(replace(ENDLESS, max_tokens=50), bad)
    [broken] = [sequence.emitter for sequence in engine._live]
    engine.submit(ENDLESS, good)
    while not raised.is_set():  # forward by forward
        target.gate.set()
        time.sleep(0.001)
        target.gate.clear()
    assert not bad.done.is_set() or not isinstance(bad.events[-1], Finish)
    target.gate.set()
    assert good.done.wait(20)
    assert bad.done.wait(20)
    failure = bad.events[-1]
    assert isinstance(failure, Failure)
    assert "parser" not in failure.message, "a foreign error's text reached the client"
    assert _comparable(good) == _comparable(expected)
    assert (good.wrong, bad.wrong) == ([], [])
    assert engine.snapshot().requests_failed == 1


@pytest.mark.parametrize("pipelined", MODES)
@pytest.mark.parametrize("when", ["start", "text", "end"])
def test_a_sink_that_raises_harms_its_request_only(make: Make, pipelined: bool, when: str) -> None:
    class Raising(Alone):
        def send(self, events: Sequence[Event], *, final: bool) -> None:
            super().send(events, final=final)
            if (when == "end") == final and (when != "text" or len(self.sends) > 2):
                raise RuntimeError("a sink must not raise")

    engine = make(pipelined=pipelined)
    alone, bad, good = Alone(), Raising(), Alone()
    engine.submit(ENDLESS, alone)
    assert alone.done.wait(20)
    engine.submit(ENDLESS, bad)
    engine.submit(ENDLESS, good)
    assert good.done.wait(20)
    assert bad.done.wait(20)
    assert _comparable(good) == _comparable(alone)
    assert isinstance(bad.events[-1], Finish if when == "end" else Failure)
    assert bad.wrong == []


@pytest.mark.parametrize("pipelined", MODES)
def test_every_request_ends_once_whatever_happens_to_it(make: Make, pipelined: bool) -> None:
    engine = make(pipelined=pipelined)
    sinks = [Alone(0.001 * (place % 3)) for place in range(36)]
    ids = []
    for place, sink in enumerate(sinks):
        wanted = _mixed()[place % 12]
        ids.append(engine.submit(replace(wanted, deadline_ms=1 + 40 * place if place % 5 == 4 else None), sink))
    for place, id in enumerate(ids):
        if place % 3 == 0:
            time.sleep(0.002)
            engine.cancel(id)
    assert all(sink.done.wait(60) for sink in sinks)
    assert [sink.wrong for sink in sinks] == [[]] * len(sinks)
    for sink in sinks:
        assert sum(isinstance(event, Finish | Failure) for event in sink.events) == 1
    seen = engine.snapshot()
    assert seen.requests_finished + seen.requests_failed + seen.requests_cancelled == len(sinks)


def test_masks_are_filled_under_the_forward(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher that fills only while a forward runs, and a forward that ends only when a mask was filled."""
    computing, filled, wrong = threading.Event(), threading.Event(), list[str]()

    class Meeting(GatedTarget):
        def forward(self, *arguments: Any) -> Any:
            computing.set()
            if not filled.wait(10):
                wrong.append("no mask was filled meanwhile")
            filled.clear()
            computing.clear()
            return super().forward(*arguments)

    fill = XGrammarMatcher.fill

    def meeting(self: XGrammarMatcher, row: Any) -> bool:
        if not computing.wait(10):
            wrong.append("nothing was computed meanwhile")
        filled.set()
        return fill(self, row)

    engine, sink = make(Meeting()), Alone()
    constrained = request(constraint=ConstraintSpec("regex", "[a-h]{9}[0-9]"), num_speculative_tokens=0)
    assert constrained.constraint is not None
    engine._loop._grammars.start(constrained.constraint).result().close()
    monkeypatch.setattr(XGrammarMatcher, "fill", meeting)
    engine.submit(constrained, sink)
    assert sink.done.wait(60)
    assert wrong == []
    assert (len(sink.text), sink.finish.reason) == (10, "stop")


@pytest.mark.parametrize(("where", "pipelined"), [("draft", True), ("draft", False), ("mask", True)])
def test_a_plan_that_fails_harms_its_request_only(make: Make, pipelined: bool, where: str) -> None:
    """Also the masks of a thread beside the engine's: the fault comes back, and out at the one place of all ends."""
    wanted = _mixed()[:6]
    engine, told = make(pipelined=pipelined), []
    planner = engine._loop._step._planner
    plan = getattr(planner, where)
    for broken in (False, True):
        sinks, calls, bad = [Alone() for _ in wanted], list[str](), set[str]()

        def faulty(sequence: Any, *rest: Any, calls: list[str] = calls, bad: set[str] = bad) -> Any:
            calls.append(sequence.id)
            if sequence.id in bad and calls.count(sequence.id) == 2:
                raise RuntimeError("a fault of the planner")
            return plan(sequence, *rest)

        setattr(planner, where, faulty)
        for place, (one, sink) in enumerate(zip(wanted, sinks, strict=True)):
            id = engine.submit(one, sink)
            bad |= {id} if broken and place == 1 else set()
        assert all(sink.done.wait(60) for sink in sinks)
        assert [sink.wrong for sink in sinks] == [[]] * len(sinks)
        told.append([_comparable(sink) for sink in sinks])
    failure = told[1][1][-1][-1]
    assert isinstance(failure, Failure)
    assert "planner" not in failure.message, "a foreign error's text reached the client"
    assert told[0][:1] + told[0][2:] == told[1][:1] + told[1][2:]


@pytest.mark.parametrize("end", ["cancel", "deadline", "close"])
def test_what_ends_a_request_while_its_masks_are_filled_waits_for_them(
    make: Make, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    target, inside, go = GatedTarget(), threading.Event(), threading.Event()
    fill, closed_early = XGrammarMatcher.fill, list[bool]()

    def held(self: XGrammarMatcher, row: Any) -> bool:
        inside.set()
        assert go.wait(20)
        closed_early.append(engine.snapshot().live_matchers == 0)
        return fill(self, row)

    engine, sink = make(target, drain_ms=0), Alone()
    constrained = request(constraint=ConstraintSpec("regex", "[a-h]{50}"), num_speculative_tokens=0)
    assert constrained.constraint is not None
    engine._loop._grammars.start(constrained.constraint).result().close()
    monkeypatch.setattr(XGrammarMatcher, "fill", held)
    id = engine.submit(replace(constrained, deadline_ms=1000 if end == "deadline" else None), sink)
    assert inside.wait(20)
    closing = threading.Thread(target=engine.close)
    if end == "cancel":
        engine.cancel(id)
    elif end == "close":
        closing.start()
    else:
        time.sleep(1.1)
    time.sleep(0.05)
    assert not sink.done.is_set()
    go.set()
    assert sink.done.wait(20)
    assert sink.finish.reason == ("deadline" if end == "deadline" else "cancelled")
    assert closed_early
    assert not any(closed_early), "the matcher was closed under its fill"
    if end == "close":
        closing.join(20)
        assert not closing.is_alive()


def test_a_forward_that_raises_while_masks_are_filled_is_tried_again(make: Make) -> None:
    class Shaky(GatedTarget):
        def forward(self, *arguments: Any) -> Any:
            if len(arguments[0]) > 1:
                raise RuntimeError("no step of more than one")
            return super().forward(*arguments)

    told = []
    for target in (Shaky(), GatedTarget()):
        engine, sinks = make(target), [Alone() for _ in _mixed()]
        for wanted, sink in zip(_mixed(), sinks, strict=True):
            engine.submit(wanted, sink)
        assert all(sink.done.wait(60) for sink in sinks)
        told.append([_comparable(sink) for sink in sinks])
    assert told[0] == told[1]


def test_a_cancel_while_a_step_is_told_waits_for_it(make: Make) -> None:
    target, inside, go = GatedTarget(), threading.Event(), threading.Event()

    class Blocking(Alone):
        def send(self, events: Sequence[Event], *, final: bool) -> None:
            if len(self.sends) == 2:
                inside.set()
                assert go.wait(20)
            super().send(events, final=final)

    engine, sink = make(target), Blocking()
    id = engine.submit(replace(ENDLESS, max_tokens=200, return_token_ids=True), sink)
    assert inside.wait(20)
    assert engine.cancel(id)
    time.sleep(0.05)
    assert not sink.done.is_set()
    go.set()
    assert sink.done.wait(20)
    assert (sink.finish.reason, sink.wrong) == ("cancelled", [])
    assert sink.finish.usage.completion_tokens == len(sink.token_ids) >= 2


@pytest.mark.parametrize("drain_ms", [60_000, 0])
def test_closing_waits_until_the_last_step_is_told(make: Make, drain_ms: int) -> None:
    engine, sinks = make(drain_ms=drain_ms), [Alone(0.02) for _ in range(3)]
    for sink in sinks:
        engine.submit(replace(ENDLESS, max_tokens=9), sink)
    until(lambda: all(sink.sends for sink in sinks))
    engine.close()
    reasons = {sink.finish.reason for sink in sinks}
    assert reasons <= ({"length"} if drain_ms else {"length", "cancelled"})
    assert [sink.wrong for sink in sinks] == [[]] * 3
    assert not any(thread.name.startswith(("k7-teller", "k7-masks")) for thread in threading.enumerate())


def test_the_outbox_runs_all_jobs_in_order_and_raises_once() -> None:
    outbox, done = Outbox(beside("k7-teller", pipelined=True)), list[int]()

    def fault() -> None:
        raise RuntimeError("a job's fault")

    go = threading.Event()
    outbox.post([lambda: done.append(int(go.wait(10))), fault, lambda: done.append(2)])
    outbox.start()
    outbox.start()
    assert done == []
    with pytest.raises(RuntimeError, match="not joined"):
        outbox.post([fault])
    go.set()
    with pytest.raises(RuntimeError, match="a job's fault"):
        outbox.join()
    assert done == [1, 2]
    outbox.join()
    outbox.post([lambda: done.append(3)])  # never started
    with pytest.raises(RuntimeError, match="not joined"):
        outbox.post([fault])
    outbox.join()
    outbox.close()
    assert done == [1, 2, 3]
