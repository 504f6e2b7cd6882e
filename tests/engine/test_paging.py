"""The engine under pressure: preemption, shared prefixes, mixed prefill and faults change no token and lose nothing.

Over a scripted target, which notices every row that is read and does not belong to its sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.emit import Emitter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import EngineError, OverloadedError, ReleaseError, RequestError
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec, Trigger
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.base import PromptRows
from heptagram_backend.targets.scripted import PagedScriptedTarget, ScriptedTarget
from heptagram_backend.xgrammar_impl import XGrammarMatcher
from heptagram_wire.events import Failure, Finish, FinishReason, Ping, Start
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_parts, until

PLAIN = OutputSpec("chatml_json")
CALLS = OutputSpec("chatml_json", parse_calls=True)
CALL = ConstraintSpec(
    "ebnf",
    'root ::= "<tool_call>\\n{\\"name\\": \\"tool\\", \\"arguments\\": {\\"a\\": " [1-9] [0-9]? "}}\\n</tool_call>"',
)
DRAFTS: tuple[DraftSource, ...] = ("none", "prompt_lookup", "grammar_forced", "auto")
BLOCK = 8
LENGTH = 128
WHOLE = (LENGTH + 8) // BLOCK  # blocks of one sequence of full length


def letters(tokens: tuple[int, ...]) -> int:
    """A model whose every token depends on all that stand before it."""
    return 97 + sum((place + 1) * token for place, token in enumerate(tokens)) % 26


class Target(PagedScriptedTarget):
    """Counts prompt rows, and can be held in a forward."""

    def __init__(self, script: Callable[[tuple[int, ...]], int], *, blocks: int, slots: int = 4) -> None:
        super().__init__(script, vocab_size=288, num_slots=slots, max_model_len=LENGTH, blocks=blocks)
        self.prefilled = 0
        self.gate = threading.Event()
        self.gate.set()
        self.turns: list[tuple[int, int]] = []

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        assert self.gate.wait(20)
        rows = sum(len(prompt.token_ids) for prompt in prompts)
        self.prefilled += rows
        self.turns.append((len(slots), rows))
        return super().mixed(token_ids, positions, slots, prompts)


Make = Callable[..., K7Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[K7Engine] = []

    def make(target: Target, *, queue: int = 32, drain_ms: int = 60_000, **options: Any) -> K7Engine:
        options = {"mask_pool_rows": 128, "max_num_seqs": 4, "max_num_batched_tokens": 72} | options
        parts = tiny_parts(target, options=EngineOptions(**options))
        engine = assemble(parts, EngineLimits("7", queue, 60_000, "tiny", drain_ms))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
        seen = engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers) == (0, 0, 0, 0)
        assert seen.blocks_held == 0
        assert seen.blocks_cached <= seen.blocks_total


def request(text: str, **changes: object) -> GenerationRequest:
    base = GenerationRequest(tuple(tiny_encode(text)), PLAIN, "tiny", max_tokens=60, return_token_ids=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def run(engine: K7Engine, requests: Sequence[GenerationRequest]) -> list[Collector]:
    sinks = [Collector() for _ in requests]
    for wanted, sink in zip(requests, sinks, strict=True):
        engine.submit(wanted, sink)
    assert all(sink.done.wait(30) for sink in sinks)
    return sinks


def answer(sink: Collector) -> tuple[Any, ...]:
    """All that a client reads, but the ids of its calls."""
    return sink.token_ids, sink.text, sink.arguments, sink.finish.reason, sink.finish.usage


def mixed_requests(drafts: DraftSource) -> list[GenerationRequest]:
    """Free, constrained and triggered ones; the model opens a call behind ``open``."""
    made = []
    for place in range(9):
        text = f"{place} tell the tool name"
        if place % 3 == 0:
            made.append(request(text, ignore_eos=True, drafts=drafts))
        elif place % 3 == 1:
            made.append(request(text, constraint=CALL, output=CALLS, drafts=drafts, max_tokens=75))
        else:
            trigger = Trigger("<tool_call>", CALL)
            made.append(request(f"open {text}", trigger=trigger, output=CALLS, drafts=drafts, max_tokens=100))
    return made


def opens(tokens: tuple[int, ...]) -> int:
    """``letters``, but behind a prompt that begins with ``o`` a call is opened every 20 tokens or so."""
    opening = tiny_encode("<tool_call>")[0]
    return opening if tokens[0] == ord("o") and len(tokens) % 20 == 0 else letters(tokens)


@pytest.mark.parametrize("blocks", [WHOLE, WHOLE + 2], ids=["one sequence", "two blocks more"])
@pytest.mark.parametrize("drafts", DRAFTS)
def test_preemption_changes_no_token(make: Make, drafts: DraftSource, blocks: int) -> None:
    """Case e-56 and its kin: a preempted request goes on as if nothing had been, whatever it is and who drafts."""
    requests = mixed_requests(drafts)
    plenty = make(Target(opens, blocks=4 * WHOLE))
    scarce = make(Target(opens, blocks=blocks))
    expected = [answer(sink) for sink in run(plenty, requests)]
    sinks = run(scarce, requests)
    assert [answer(sink) for sink in sinks] == expected
    assert plenty.snapshot().preemptions == 0
    assert scarce.snapshot().preemptions > 2
    assert sum(sink.finish.stats.preemptions for sink in sinks) == scarce.snapshot().preemptions
    for sink in sinks:
        assert sum(isinstance(event, Start) for event in sink.events) == 1, "something was sent again"


@pytest.mark.parametrize("decoded", [True, False])
def test_a_shared_prefix_changes_no_token_and_saves_its_prefill(make: Make, decoded: bool) -> None:
    prompt = "the tool name the arguments, the same for all of us, and then: "
    requests = [request(f"{prompt}{place}", max_tokens=20, ignore_eos=True) for place in range(6)]
    answers, targets = [], []
    for caching in (True, False):
        target = Target(letters, blocks=4 * WHOLE)
        target._paging = replace(target.paging, decoded=decoded)
        engine = make(target, enable_prefix_caching=caching)
        answers.append([answer(run(engine, [wanted])[0]) for wanted in requests])
        targets.append(target)
    assert answers[0] == answers[1]
    assert targets[0].prefilled < targets[1].prefilled / 3
    # A second turn of the conversation: the answer of the first one was written by steps.
    said = answers[0][0][0]
    again = replace(requests[0], prompt_ids=(*requests[0].prompt_ids, *said, 97))
    before = targets[0].prefilled
    engine = make(targets[0])  # nothing is published in this one
    first = answer(run(engine, [again])[0])
    assert targets[0].prefilled - before == len(again.prompt_ids) - 1
    assert answer(run(engine, [again])[0]) == first


def test_a_conversation_goes_on_from_what_steps_wrote(make: Make) -> None:
    target = Target(letters, blocks=4 * WHOLE)
    engine = make(target)
    first = request("name: ", ignore_eos=True, max_tokens=50)
    said = answer(run(engine, [first])[0])[0]
    second = replace(first, prompt_ids=(*first.prompt_ids, *said, 97), max_tokens=10)
    before = target.prefilled
    found = run(engine, [second])[0]
    assert target.prefilled - before <= BLOCK
    assert engine.snapshot().prefix_hit_tokens >= 48
    assert answer(found) == answer(run(make(Target(letters, blocks=4 * WHOLE)), [second])[0])


def test_streams_go_on_while_a_long_prompt_is_written(make: Make) -> None:
    target = Target(letters, blocks=4 * WHOLE)
    engine = make(target, long_prefill_token_threshold=8)
    stream, late = Collector(), Collector()
    engine.submit(request("x", ignore_eos=True, max_tokens=100, num_speculative_tokens=0), stream)
    until(lambda: len(stream.token_ids) > 3)
    engine.submit(request("the " * 100, max_tokens=1), late)
    assert late.done.wait(20)
    assert stream.done.wait(20)
    shared = [rows for steps, rows in target.turns if steps and rows]
    assert len(shared) >= 99 // 8, "the prompt was written in turns that the stream shared"
    assert max(shared) == 8
    assert all(steps for steps, rows in target.turns[1:] if rows > 1), "the stream had to wait"


@pytest.mark.parametrize("option", ["kv_cache_blocks", "kv_cache_memory"])
def test_a_cache_size_for_a_target_without_blocks_is_refused(option: str) -> None:
    target = ScriptedTarget(letters, vocab_size=288, num_slots=1, max_model_len=64)
    options: dict[str, Any] = {"mask_pool_rows": 128, option: 1000}
    with pytest.raises(ReleaseError, match=f"engine.{option}: this model keeps a cache for each sequence"):
        tiny_parts(target, options=EngineOptions(**options))


def test_many_constrained_requests_in_a_small_cache_all_end(make: Make) -> None:
    """Case e-60: the cache is nearly full, all are constrained; and afterwards nothing is missing."""
    engine = make(Target(letters, blocks=WHOLE))
    text = "Weather in " + "Oslo " * 6
    requests = [request(f"{place} {text}", constraint=CALL, output=CALLS, max_tokens=75) for place in range(8)]
    sinks = run(engine, requests)
    assert [sink.finish.reason for sink in sinks] == ["tool_calls"] * 8
    seen = engine.snapshot()
    assert (seen.blocks_held, seen.live_matchers, seen.slots_used) == (0, 0, 0)
    assert (
        run(engine, [request("Weather in Oslo?", constraint=CALL, output=CALLS, max_tokens=75)])[0].finish.reason
        == "tool_calls"
    )


def test_what_can_never_fit_is_refused_at_once_with_the_numbers(make: Make) -> None:
    engine = make(Target(letters, blocks=6))
    with pytest.raises(RequestError, match="30 prompt tokens and max_tokens 12 do not fit the cache of 6 blocks of 8"):
        engine.submit(request("x" * 30, max_tokens=12), Collector())
    with pytest.raises(RequestError, match="do not fit the context of 128"):
        engine.submit(request("x" * 30, max_tokens=99), Collector())
    assert run(engine, [request("x" * 30, max_tokens=11, ignore_eos=True)])[0].finish.reason == "length"


def test_when_nothing_can_go_on_one_is_told_and_its_blocks_help_the_others(make: Make) -> None:
    """As if a fault of ours had lost blocks: never a silence, and no more victims than needed."""
    target = Target(letters, blocks=10)
    engine = make(target)
    target.gate.clear()
    victim, other = Collector(), Collector()
    engine.submit(request("x" * 8, ignore_eos=True, max_tokens=56), victim)
    engine.submit(request("y" * 8, ignore_eos=True, max_tokens=40), other)
    engine._scheduler.pool.allocate(2)
    target.gate.set()
    assert victim.done.wait(20)
    assert other.done.wait(20)
    failure = victim.events[-1]
    assert isinstance(failure, Failure)
    assert failure.code == "overloaded"
    assert "of 10 cache blocks" in failure.message
    assert other.finish.reason == "length"
    engine._scheduler.pool.release(list(engine._scheduler.pool._references))


class Faulty(Target):
    """Raises whenever ``#`` is an anchor or stands in a prompt."""

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        if (token_ids[:, 0] == 35).any() or any(35 in prompt.token_ids for prompt in prompts):
            raise RuntimeError("a fault of the forward that all share")
        return super().mixed(token_ids, positions, slots, prompts)


@pytest.mark.parametrize("bad", ["ends in #", "has # inside"])
def test_a_step_that_raises_is_narrowed_to_its_request(make: Make, bad: str) -> None:
    texts = ["one of us", bad, "another one", "and one more"]
    target = Faulty(letters, blocks=4 * WHOLE)
    target.gate.clear()
    engine = make(target)
    sinks = [Collector() for _ in texts]
    for text, sink in zip(texts, sinks, strict=True):
        engine.submit(request(text, ignore_eos=True, max_tokens=30), sink)
    target.gate.set()
    assert all(sink.done.wait(20) for sink in sinks)
    alone = make(Target(letters, blocks=4 * WHOLE))
    for text, sink in zip(texts, sinks, strict=True):
        if text == bad:
            assert isinstance(sink.events[-1], Failure)
            assert sink.events[-1].code == "internal"
        else:
            assert answer(sink) == answer(run(alone, [request(text, ignore_eos=True, max_tokens=30)])[0])


@pytest.mark.parametrize("company", [0, 2])
def test_a_fault_in_planning_needs_no_forward(make: Make, monkeypatch: pytest.MonkeyPatch, company: int) -> None:
    """A grammar that fails when it is asked for a mask ends its own request; the others share their forward on."""
    engine = make(Target(letters, blocks=4 * WHOLE))
    others = [request(f"{place} free", ignore_eos=True, max_tokens=30) for place in range(company)]
    expected = [answer(sink) for sink in run(engine, others)]
    before = engine.snapshot().requests_failed

    def fails(*arguments: object) -> bool:
        raise EngineError("no mask")

    run(engine, [request("0 Oslo", constraint=CALL, output=CALLS, max_tokens=75)])  # compiled, and found alive
    monkeypatch.setattr(XGrammarMatcher, "fill", fails)
    sinks = [Collector() for _ in range(company + 1)]
    engine.submit(request("0 Oslo", constraint=CALL, output=CALLS, max_tokens=75), sinks[company])
    for other, sink in zip(others, sinks, strict=False):
        engine.submit(other, sink)
    assert all(sink.done.wait(20) for sink in sinks)
    failure = sinks[company].events[-1]
    assert isinstance(failure, Failure)
    assert failure.message == "no mask"
    assert [answer(sink) for sink in sinks[:company]] == expected
    assert engine.snapshot().requests_failed == before + 1


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_fault_at_the_end_of_a_request_is_its_own(
    make: Make, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    target = Target(letters, blocks=4 * WHOLE)
    engine = make(target)
    other = request("another", ignore_eos=True, max_tokens=60)
    [expected] = run(engine, [other])
    finish = Emitter.finish

    def faulty(self: Emitter, reason: FinishReason) -> FinishReason:
        if self is broken:
            raise RuntimeError("a fault of the parser")
        return finish(self, reason)

    monkeypatch.setattr(Emitter, "finish", faulty)
    target.gate.clear()
    sinks = [Collector(), Collector()]
    bad = engine.submit(request("x", ignore_eos=True, max_tokens=9), sinks[0])
    [broken] = [sequence.emitter for sequence in engine._live]
    engine.submit(other, sinks[1])
    if cancelled:
        engine.cancel(bad)
    target.gate.set()
    assert all(sink.done.wait(20) for sink in sinks)
    failure = sinks[0].events[-1] if sinks[0].events else sinks[0].error
    assert isinstance(failure, Failure | EngineError)
    assert answer(sinks[1]) == answer(expected)


def test_priority_decides_who_waits(make: Make) -> None:
    target = Target(letters, blocks=4 * WHOLE, slots=1)
    engine = make(target)
    target.gate.clear()
    order: list[str] = []

    class Noted(Collector):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def send(self, events: Sequence[Any], *, final: bool) -> None:
            super().send(events, final=final)
            if final:
                order.append(self.name)

    sinks = [Noted("first"), Noted("late"), Noted("urgent")]
    for sink, priority in zip(sinks, (0, 1, -1), strict=True):
        engine.submit(request("x", max_tokens=9, ignore_eos=True, priority=priority), sink)
        until(lambda: engine.snapshot().running == 1)
    target.gate.set()
    assert all(sink.done.wait(20) for sink in sinks)
    assert order == ["first", "urgent", "late"]


def test_a_full_queue_is_told_with_its_depth(make: Make) -> None:
    target = Target(letters, blocks=4 * WHOLE, slots=1)
    engine = make(target, queue=2)
    target.gate.clear()
    sinks = [Collector() for _ in range(3)]
    for sink in sinks:
        engine.submit(request("x", max_tokens=5), sink)
        until(lambda: engine.snapshot().running == 1)
    with pytest.raises(OverloadedError, match=r"1 requests run and 2 wait, .* 1 slots and max_queue_size 2 hold"):
        engine.submit(request("x"), Collector())
    target.gate.set()
    assert all(sink.done.wait(20) for sink in sinks)


def test_closing_waits_within_its_bound_and_then_cancels(make: Make) -> None:
    target = Target(letters, blocks=4 * WHOLE, slots=1)
    engine = make(target, drain_ms=1)
    target.gate.clear()
    running, waiting = Collector(), Collector()
    for sink in (running, waiting):
        engine.submit(request("x", ignore_eos=True, max_tokens=100), sink)
    until(lambda: engine.snapshot().running == 1)
    closing = threading.Thread(target=engine.close)
    closing.start()
    target.gate.set()
    closing.join(20)
    assert not closing.is_alive()
    assert [sink.finish.reason for sink in (running, waiting)] == ["cancelled", "cancelled"]
    with pytest.raises(OverloadedError, match="shutting down"):
        engine.submit(request("x"), Collector())


@pytest.mark.parametrize("when", ["queued", "started", "first text", "in a call", "racing with the end"])
def test_a_cancel_at_any_time_leaves_nothing_behind(make: Make, when: str) -> None:
    """Case e-61. The pool, the matchers and the table of requests are as before, and the next one is served."""
    target = Target(letters, blocks=WHOLE + 4, slots=2)
    engine = make(target)
    enough = {"queued": 0, "started": 1, "first text": 2, "in a call": 3, "racing with the end": 5}[when]
    base = request("0 Oslo", constraint=CALL, output=CALLS, num_speculative_tokens=2, max_tokens=75)
    wanted = [replace(base, prompt_ids=(48 + place, *base.prompt_ids[1:])) for place in range(4)]
    for _ in range(6):
        sinks = [Collector() for _ in wanted]
        ids = [engine.submit(one, sink) for one, sink in zip(wanted, sinks, strict=True)]
        until(lambda: len(sinks[0].events) >= enough or sinks[0].done.is_set())  # noqa: B023
        for id in ids + ids:  # twice: the second one finds nothing, or the same
            engine.cancel(id)
        for sink in sinks:
            assert sink.done.wait(20)
            assert isinstance(sink.events[-1], Finish)
            assert sink.finish.reason in ("cancelled", "tool_calls")
            assert not any(isinstance(event, Ping) for event in sink.events[-1:])
        until(lambda: engine.snapshot().live_matchers == 0)
        seen = engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.blocks_held) == (0, 0, 0, 0)
        engine._scheduler.check()
    assert run(engine, [wanted[0]])[0].finish.reason == "tool_calls"


def test_tokens_behind_a_stop_token_are_dropped_and_the_matcher_is_not_asked(make: Make) -> None:
    """Case e-55: the draft window holds the end and more tokens, all of which the target would take."""
    done = tiny_encode('<tool_call>\n{"name": "tool", "arguments": {"a": 7}}\n</tool_call>')
    prompt = tiny_encode("open: ")

    def says(tokens: tuple[int, ...]) -> int:
        place = len(tokens) - len(prompt)
        return done[place] if place < len(done) else (EOS, 10, 10, 97)[(place - len(done)) % 4]

    def window(tokens: Sequence[int], limit: int) -> list[int]:
        """What the target will say, the end of turn and the tokens behind it included."""
        drafted: list[int] = []
        while len(drafted) < limit:
            drafted.append(says((*tokens, *drafted)))
        return drafted

    target = Target(says, blocks=4 * WHOLE)
    parts = tiny_parts(target, scripts={"scripted": window}, options=EngineOptions(mask_pool_rows=128, max_num_seqs=4))
    engine = assemble(parts, EngineLimits("7", 8, 60_000, "tiny"))
    for constraint in (CALL, None):
        wanted = request("open: ", constraint=constraint, output=CALLS, drafts="scripted")
        sink = run(engine, [wanted])[0]
        assert sink.finish.reason == "tool_calls"
        assert sink.arguments == ['{"a": 7}']
        assert sink.finish.usage.completion_tokens == len(done) + 1
    with pytest.raises(RequestError, match="ends where its constraint does"):
        engine.submit(request("open: ", constraint=CALL, ignore_eos=True), Collector())
    engine.close()
    assert engine.snapshot().live_matchers == 0
