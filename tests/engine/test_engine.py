"""The engine's thread over a scripted target: starts, ends, faults, triggers. After each test nothing is held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engine_api import CancelCause
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import OverloadedError, RequestError
from heptagram_backend.generation import GenerationRequest, Markup, OutputSpec, Trigger
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.xgrammar_impl import XGrammarFactory, XGrammarMatcher
from heptagram_wire.events import CallEnd, CallStart, Failure, Finish, Ping, Start, TextDelta
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_parts, until

PROMPT = tuple(tiny_encode("prompt: "))
PLAIN = OutputSpec("chatml_json")
CALLS = OutputSpec("chatml_json", parse_calls=True)
CALL = ConstraintSpec(
    "ebnf",
    'root ::= "<tool_call>\\n{\\"name\\": \\"tool\\", \\"arguments\\": {\\"a\\": " [1-9] [0-9]? "}}\\n</tool_call>"',
)
Answer = Callable[[tuple[int, ...]], int]


def says(text: str, *, then: int = EOS) -> Answer:
    """A model that answers ``text`` behind any prompt that ends with ``: ``, then ``then`` for ever."""
    answer = tiny_encode(text)

    def script(tokens: tuple[int, ...]) -> int:
        place = len(tokens) - len(PROMPT)
        return answer[place] if place < len(answer) else then

    return script


Make = Callable[..., K7Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[K7Engine] = []

    def make(script: Answer, *, slots: int = 4, target: ScriptedTarget | None = None, max_queue: int = 8) -> K7Engine:
        target = target or ScriptedTarget(script, vocab_size=288, num_slots=slots, max_model_len=256)
        parts = tiny_parts(target, options=EngineOptions(mask_pool_rows=128))
        engine = assemble(parts, EngineLimits("7", max_queue, 60_000, "tiny"))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
        seen = engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers) == (0, 0, 0, 0)


def request(**changes: object) -> GenerationRequest:
    base = GenerationRequest(PROMPT, PLAIN, "tiny", max_tokens=60)
    return replace(base, **changes)  # type: ignore[arg-type]


def run(engine: K7Engine, wanted: GenerationRequest) -> Collector:
    sink = Collector()
    engine.submit(wanted, sink)
    assert sink.done.wait(20)
    return sink


def test_an_answer_starts_streams_and_finishes(make: Make) -> None:
    sink = run(make(says("hello the world")), request())
    start = sink.events[0]
    assert start == Start(start.id, "tiny", "7", len(PROMPT), 60)  # type: ignore[union-attr]
    assert len(start.id) >= 32
    assert sink.text == "hello the world"
    assert sink.finish.reason == "stop"
    assert sink.finish.usage.completion_tokens == len(tiny_encode("hello the world")) + 1
    speculative = sink.finish.stats.speculative_decoding
    told = speculative.num_accepted_draft_tokens + speculative.num_spec_steps
    assert told == sink.finish.usage.completion_tokens
    assert sink.finish.stats.masked_rows == sink.finish.stats.mask_bytes == 0, "an ordinary request paid for masks"


def test_max_tokens_is_exact_in_a_burst(make: Make) -> None:
    engine = make(says("abcabcabcabcabcabcabcabc"))
    for limit in range(1, 12):
        sink = run(engine, request(max_tokens=limit))
        assert sink.finish.reason == "length"
        assert sink.finish.usage.completion_tokens == limit
        assert sink.text == "abcabcabcabcabcabcabcabc"[:limit]


@pytest.mark.parametrize("stop", ["cab", "bcabcabX", "a", "abcabcabcabcabc"])
def test_a_stop_string_inside_a_burst_is_trimmed(make: Make, stop: str) -> None:
    text = "abcabcabcabcabcabcabcabX tail"
    sink = run(make(says(text)), request(stop=(stop,)))
    assert sink.text == text[: text.index(stop)]
    assert sink.finish.reason == "stop"


def test_a_stop_string_that_does_not_come_is_not_held_back(make: Make) -> None:
    sink = run(make(says("2 < 3 and <to")), request(stop=("<tool>",)))
    assert sink.text == "2 < 3 and <to"


def test_stop_tokens_and_ignore_eos(make: Make) -> None:
    sink = run(make(says("abcd")), request(stop_token_ids=(ord("c"),)))
    assert (sink.text, sink.finish.reason) == ("ab", "stop")
    sink = run(make(says("ab")), request(ignore_eos=True, max_tokens=6))
    assert (sink.text, sink.finish.reason) == ("ab", "length")
    assert sink.finish.usage.completion_tokens == 6


def test_token_ids_are_complete(make: Make) -> None:
    text = "é€ the <tool_call> 😀"
    sink = run(make(says(text)), request(return_token_ids=True))
    ids = [token for event in sink.events if isinstance(event, TextDelta) for token in event.token_ids or ()]
    assert sink.text == text
    assert ids == tiny_encode(text)


def test_a_constraint_holds_against_the_model(make: Make) -> None:
    engine = make(says("no json at all, ever"))
    spec = ConstraintSpec("regex", '\\{"a": (true|false)\\}')
    sink = run(engine, request(constraint=spec))
    assert sink.text in ('{"a": true}', '{"a": false}')
    assert sink.finish.reason == "stop"
    assert sink.finish.stats.masked_rows > 0


def test_a_constraint_that_does_not_compile_fails_before_start(make: Make) -> None:
    sink = run(make(says("x")), request(constraint=ConstraintSpec("ebnf", "root ::= nowhere")))
    assert isinstance(sink.error, RequestError)
    assert not sink.events


def _calls(sink: Collector) -> list[str]:
    return [event.name for event in sink.events if isinstance(event, CallStart)]


@pytest.mark.parametrize("count", [0, 1, 3, 7])
@pytest.mark.parametrize("drafts", ["none", "prompt_lookup", "grammar_forced", "auto"])
def test_a_trigger_holds_the_shape_and_then_lets_go(make: Make, drafts: str, count: int) -> None:
    """The model opens a call, writes nonsense inside and goes on behind it: the shape is held, then text is free."""
    text = 'so <tool_call>\n{"name": "evil", "arguments": {"a": 7}}\n</tool_call> and on <tool_call> {nonsense'
    wanted = request(
        output=CALLS, trigger=Trigger("<tool_call>", CALL), drafts=drafts, num_speculative_tokens=count, max_tokens=120
    )
    sink = run(make(says(text)), wanted)
    assert _calls(sink)[:1] == ["tool"]
    assert all(name == "tool" for name in _calls(sink))
    assert sink.text.startswith("so ")
    assert sink.arguments[0].startswith('{"a": ')
    assert "<tool_call>" not in sink.text


def test_every_drafter_gives_the_same_triggered_answer(make: Make) -> None:
    text = "th <tool_call> {" + '"name": "tool", "arguments": {"a": 4}} the the the the <tool_call>'
    engine = make(says(text))
    answers = set()
    for drafts in ("none", "prompt_lookup", "grammar_forced", "auto"):
        for count in (0, 2, 7):
            wanted = request(output=CALLS, trigger=Trigger("<tool_call>", CALL), drafts=drafts, max_tokens=90)
            sink = run(engine, replace(wanted, num_speculative_tokens=count))
            answers.add((sink.text, tuple(sink.arguments), sink.finish.reason, sink.finish.usage))
    assert len(answers) == 1


def test_once_allows_nothing_behind_the_call(make: Make) -> None:
    text = 'x<tool_call>\n{"name": "tool", "arguments": {"a": 7}}\n</tool_call> more <tool_call>'
    wanted = request(output=CALLS, trigger=Trigger("<tool_call>", CALL, once=True), max_tokens=120)
    sink = run(make(says(text)), wanted)
    assert (sink.text, sink.arguments, sink.finish.reason) == ("x", ['{"a": 7}'], "tool_calls")


def test_without_a_trigger_markup_is_text(make: Make) -> None:
    text = 'so <tool_call>\n{"name": "evil"'
    assert run(make(says(text)), request()).text == text


def test_a_call_cut_by_max_tokens_is_length(make: Make) -> None:
    wanted = request(output=CALLS, constraint=CALL, max_tokens=12)
    sink = run(make(says("")), wanted)
    assert sink.finish.reason == "length"
    assert not any(isinstance(event, CallEnd) for event in sink.events)


def test_a_finished_call_that_breaks_its_schema_is_a_failure_and_is_counted(make: Make) -> None:
    """The grammar here is looser than the schema, as if the grammar library had a fault."""
    output = replace(CALLS, schemas={"tool": {"type": "object", "properties": {"a": {"maximum": 3}}}})
    text = '<tool_call>\n{"name": "tool", "arguments": {"a": 77}}\n</tool_call>'
    engine = make(says(text))
    sink = run(engine, request(output=output, constraint=CALL, max_tokens=120))
    failure = sink.events[-1]
    assert isinstance(failure, Failure)
    assert failure.code == "invalid_output"
    assert not any(isinstance(event, CallEnd) for event in sink.events)
    assert engine.snapshot().invalid_outputs == 1


class SlowTarget(ScriptedTarget):
    def forward(self, *arguments: object) -> object:  # type: ignore[override]
        time.sleep(0.02)
        return super().forward(*arguments)  # type: ignore[arg-type]


def test_an_answer_that_breaks_its_schema_is_a_failure_and_is_counted(make: Make) -> None:
    wanted = request(output=replace(PLAIN, answer={"type": "object", "not": {"required": ["a"]}}))
    engine = make(says('{"a": 1}'))
    sink = run(engine, wanted)
    assert sink.text == '{"a": 1}'
    failure = sink.events[-1]
    assert isinstance(failure, Failure)
    assert failure.code == "invalid_output"
    assert "the answer is not valid at $: " in failure.message
    assert engine.snapshot().invalid_outputs == 1
    assert run(make(says('{"b": 1}')), wanted).finish.reason == "stop"


def test_cancel_ends_within_a_step_wherever_the_request_is(make: Make) -> None:
    target = SlowTarget(says("", then=97), vocab_size=288, num_slots=1, max_model_len=256)
    engine = make(says(""), target=target)
    running, waiting = Collector(), Collector()
    first = engine.submit(request(max_tokens=200, num_speculative_tokens=0), running)
    second = engine.submit(request(max_tokens=200), waiting)
    until(lambda: len(running.events) > 2 and bool(waiting.events))
    assert engine.cancel(second)
    assert waiting.done.wait(5)
    assert [type(event) for event in waiting.events if not isinstance(event, Ping)] == [Start, Finish]
    assert waiting.finish.reason == "cancelled"
    assert not running.done.is_set()
    assert engine.cancel(first)
    assert running.done.wait(5)
    assert running.finish.reason == "cancelled"
    assert not engine.cancel(first)
    assert not engine.cancel("unknown")
    assert engine.snapshot().requests_cancelled == 2


def test_a_deadline_ends_a_waiting_and_a_running_request(make: Make) -> None:
    target = SlowTarget(says("", then=97), vocab_size=288, num_slots=1, max_model_len=256)
    engine = make(says(""), target=target)
    sinks = [Collector(), Collector()]
    for sink in sinks:
        engine.submit(request(max_tokens=200, num_speculative_tokens=0, deadline_ms=300), sink)
    assert all(sink.done.wait(5) for sink in sinks)
    assert [sink.finish.reason for sink in sinks] == ["deadline", "deadline"]


def test_a_waiting_request_is_pinged(make: Make) -> None:
    target = SlowTarget(says("", then=97), vocab_size=288, num_slots=1, max_model_len=256)
    engine = make(says(""), target=target)
    sinks = [Collector(), Collector()]
    for sink in sinks:
        engine.submit(request(max_tokens=200, num_speculative_tokens=0, deadline_ms=1500), sink)
    assert sinks[1].done.wait(5)
    assert sum(isinstance(event, Ping) for event in sinks[1].events) >= 2


def test_a_full_house_is_overloaded_and_recovers(make: Make) -> None:
    target = SlowTarget(says("", then=97), vocab_size=288, num_slots=1, max_model_len=256)
    engine = make(says(""), target=target, max_queue=2)
    ids = [engine.submit(request(max_tokens=200), Collector()) for _ in range(3)]
    with pytest.raises(OverloadedError):
        engine.submit(request(), Collector())
    for id in ids:
        engine.cancel(id)
    until(lambda: engine.snapshot().waiting + engine.snapshot().running == 0)
    assert run(engine, request(max_tokens=2)).finish.reason == "length"


class FaultyTarget(ScriptedTarget):
    """Raises while token 33 (``!``) stands in a prompt chunk, or while token 35 (``#``) is an anchor."""

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        if 33 in token_ids:
            raise RuntimeError("prefill fault")
        super().prefill(slot=slot, start=start, token_ids=token_ids)

    def forward(self, token_ids, positions, slots):  # type: ignore[no-untyped-def]
        if (token_ids[:, 0] == 35).any():
            raise RuntimeError("forward fault")
        return super().forward(token_ids, positions, slots)


@pytest.mark.parametrize("text", ["bad !: ", "bad #"])
def test_a_fault_of_the_model_ends_its_request_only(make: Make, text: str) -> None:
    target = FaultyTarget(says("fine"), vocab_size=288, num_slots=2, max_model_len=256)
    engine = make(says(""), target=target)
    bad = run(engine, request(prompt_ids=tuple(tiny_encode(text))))
    assert isinstance(bad.events[-1], Failure)
    assert bad.events[-1].code == "internal"
    assert "fault" not in bad.events[-1].message, "a foreign error's text reached the client"
    assert run(engine, request()).text == "fine"


def _dead_fill(self: object, row: object) -> bool:
    row[:] = 0  # type: ignore[index]
    return True


def _raise(*arguments: object) -> bool:
    raise RuntimeError("fault inside")


@pytest.mark.parametrize(("method", "replacement"), [("fill", _dead_fill), ("fill", _raise), ("accept", _raise)])
def test_a_fault_of_a_grammar_ends_its_request_only(
    make: Make, monkeypatch: pytest.MonkeyPatch, method: str, replacement: object
) -> None:
    engine = make(says("fine"))
    run(engine, request(constraint=CALL))  # compiled, and found alive
    good, bad = Collector(), Collector()

    monkeypatch.setattr(XGrammarMatcher, method, replacement)
    engine.submit(request(constraint=CALL), bad)
    engine.submit(request(), good)
    assert bad.done.wait(5)
    assert good.done.wait(5)
    assert isinstance(bad.events[-1], Failure)
    assert "inside" not in bad.events[-1].message
    assert good.text == "fine"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt_ids": ()}, "prompt_ids"),
        ({"prompt_ids": (1, 288)}, "prompt_ids"),
        ({"prompt_ids": (-1,)}, "prompt_ids"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 256}, "max_tokens"),
        ({"vocabulary": "other"}, "plan"),
        ({"ignore_eos": True, "constraint": CALL}, "ignore_eos"),
        ({"drafts": "scripted"}, "plan"),
        ({"output": OutputSpec("no such format")}, "plan"),
    ],
)
def test_what_can_never_run_is_refused_at_once(make: Make, changes: dict[str, object], param: str) -> None:
    engine = make(says("x"))
    with pytest.raises(RequestError) as caught:
        engine.submit(request(**changes), Collector())
    assert caught.value.wire.param == param


def test_a_request_may_fill_the_context(make: Make) -> None:
    sink = run(make(says("", then=97)), request(max_tokens=256 - len(PROMPT)))
    assert sink.finish.reason == "length"
    assert sink.finish.usage.completion_tokens == 256 - len(PROMPT)


def test_many_at_once_each_get_their_own_answer(make: Make) -> None:
    def script(tokens: tuple[int, ...]) -> int:
        return tokens[0] if len(tokens) < 40 else EOS

    engine = make(script, slots=3, max_queue=40)
    sinks = [Collector() for _ in range(24)]
    for place, sink in enumerate(sinks):
        engine.submit(request(prompt_ids=(97 + place, 1, 2)), sink)
    for place, sink in enumerate(sinks):
        assert sink.done.wait(20)
        assert sink.text == chr(97 + place) * 37 or place > 25


def test_closing_finishes_what_runs_and_refuses_what_comes(make: Make) -> None:
    target = SlowTarget(says("", then=97), vocab_size=288, num_slots=1, max_model_len=256)
    engine = make(says(""), target=target)
    sink = Collector()
    engine.submit(request(max_tokens=20), sink)
    engine.close()
    assert sink.finish.reason == "length"
    with pytest.raises(OverloadedError):
        engine.submit(request(), Collector())


def test_a_fault_that_nothing_contains_ends_what_runs_and_not_the_engine(make: Make) -> None:
    class Broken(Collector):
        def send(self, events: Sequence[object], *, final: bool) -> None:
            raise RuntimeError("a sink must not raise")

    engine = make(says("the " * 40))
    beside = Collector()
    engine.submit(request(), beside)
    engine.submit(request(), Broken())
    assert beside.done.wait(20), "a client hangs"
    assert isinstance(beside.events[-1], Failure | Finish)
    assert run(engine, request(max_tokens=3)).finish.reason == "length"


@pytest.mark.parametrize(("markup", "shown"), [("calls", ""), ("guarded", ""), ("free", '<tool_call>\n{"')])
def test_markup_of_a_call_that_was_cut_is_not_told_as_text(make: Make, markup: Markup, shown: str) -> None:
    limit = len(tiny_encode('<tool_call>\n{"'))
    output = replace(CALLS, markup=markup)
    sink = run(make(says('<tool_call>\n{"name": "tool"')), request(output=output, max_tokens=limit))
    assert (sink.text, sink.finish.reason) == (shown, "length")


def test_half_a_tag_is_text_unless_the_answer_is_calls_only(make: Make) -> None:
    engine = make(says("2 <to"))
    assert run(engine, request(output=replace(CALLS, markup="guarded"))).text == "2 <to"
    assert run(engine, request(output=replace(CALLS, markup="calls"), max_tokens=4)).text == "2 "


def test_a_cut_second_call_is_not_tool_calls(make: Make) -> None:
    """A stop token of the request's own ends the answer inside the second call."""
    call = '<tool_call>\n{"name": "tool", "arguments": {"a": %d}}\n</tool_call>\n'
    text = call % 7 + call % 8
    sink = run(make(says(text)), request(output=CALLS, stop_token_ids=(ord("8"),), max_tokens=120))
    assert sink.arguments == ['{"a": 7}', '{"a": ']
    assert sink.finish.reason == "stop"


def test_tokens_behind_a_stop_are_neither_sent_nor_counted(make: Make) -> None:
    sink = run(make(says("abcabcabcabcabcabcZabcabc")), request(stop=("Z",)))
    assert sink.finish.usage.completion_tokens == len(tiny_encode("abcabcabcabcabcabcZ"))


def test_a_cancel_while_the_grammar_compiles_closes_its_matcher(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()
    matcher = XGrammarFactory.matcher

    def slow(self: XGrammarFactory, spec: ConstraintSpec) -> XGrammarMatcher:
        entered.set()
        assert go.wait(10)
        return matcher(self, spec)

    monkeypatch.setattr(XGrammarFactory, "matcher", slow)
    engine = make(says("x"))
    sink = Collector()
    id = engine.submit(request(constraint=CALL), sink)
    assert entered.wait(5)
    assert engine.cancel(id)
    assert sink.done.wait(5)
    assert sink.finish.reason == "cancelled"
    go.set()
    until(lambda: engine.snapshot().live_matchers == 0)


def test_a_verified_token_that_the_matcher_refuses_fails_the_request(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the library's mask were wrong: the request fails, and never goes on without its constraint."""
    engine = make(says("{}"))
    monkeypatch.setattr(XGrammarMatcher, "accept", lambda *_: False)
    sink = run(engine, request(constraint=CALL, num_speculative_tokens=0))
    failure = sink.events[-1]
    assert isinstance(failure, Failure)
    assert failure.code == "internal"
    assert not sink.text


def test_what_is_measured_of_an_answer_is_counted_once(make: Make) -> None:
    engine = make(says("hello the world"))
    run(engine, request())
    run(engine, request(n=2))
    told = engine.snapshot().distributions
    counts = {name: told[name].count for name in ("queue", "first_token", "end_to_end", "generation_tokens")}
    assert set(counts.values()) == {3}
    assert told["prompt_tokens"].count == 2
    assert told["inter_token"].count + told["first_token"].count <= engine.snapshot().generated_tokens
    assert told["end_to_end"].sum >= told["first_token"].sum >= told["queue"].sum > 0


def test_a_cancel_is_counted_by_its_cause(make: Make) -> None:
    def slow(tokens: tuple[int, ...]) -> int:
        time.sleep(0.002)
        return ord("a")

    engine = make(slow)
    for cause in get_args(CancelCause)[:2]:
        sink = Collector()
        engine.cancel(engine.submit(request(max_tokens=200), sink), cause)
        assert sink.done.wait(20)
        assert sink.finish.reason == "cancelled"
    late = run(engine, request(deadline_ms=1, max_tokens=200))
    assert late.finish.reason == "deadline"
    told = engine.snapshot()
    assert told.cancelled == {"client": 1, "stop": 1, "deadline": 1, "drain": 0}
    assert (told.requests_finished, told.distributions["end_to_end"].count) == (0, 1)
