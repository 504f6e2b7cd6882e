"""``n`` answers to one request: each is what it would be alone, the prompt is written once, and one end is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.emit import Emitter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import EngineError, OverloadedError, RequestError
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec, SamplingParams, Trigger
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.base import PromptRows
from heptagram_backend.targets.scripted import PagedScriptedTarget, ScriptedTarget
from heptagram_wire import errors as codes
from heptagram_wire.events import ChoiceEnd, Event, Failure, Finish, Ping, Start
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_parts, until

PLAIN = OutputSpec("chatml_json")
CALLS = OutputSpec("chatml_json", parse_calls=True)
CALL = ConstraintSpec(
    "ebnf",
    'root ::= "<tool_call>\\n{\\"name\\": \\"tool\\", \\"arguments\\": {\\"a\\": " [1-9] [0-9]? "}}\\n</tool_call>"',
)
BROKEN = ConstraintSpec("ebnf", "root ::= nothing")
BLOCK, LENGTH = 8, 128
WHOLE = (LENGTH + 8) // BLOCK
WARM = SamplingParams(temperature=1.0, seed=40)
TEXT = "tell the tool a name that is long"
PROMPT = tuple(tiny_encode(TEXT))
COMPLETE = (len(PROMPT) - 1) // BLOCK * BLOCK
"""Rows of the prompt that lie in complete blocks; the last token is the first step's."""


def soften(row: Tensor, context: tuple[int, ...]) -> None:
    """Letters, digits, an opened call and now and then the end, their likelihoods of all that stands before."""
    seen = sum((place + 1) * token for place, token in enumerate(context))
    for place, token in enumerate((*tiny_encode("abcdefgh12"), *tiny_encode("<tool_call>"), EOS)):
        row[token] = 4 + (seen * (place + 3)) % 7 / 3


class Soft(PagedScriptedTarget):
    """Counts the rows of prompts."""

    def __init__(self, *, blocks: int = 6 * WHOLE, slots: int = 6) -> None:
        super().__init__(lambda _: EOS, vocab_size=288, num_slots=slots, max_model_len=LENGTH, blocks=blocks)
        self.prefilled = 0

    def write(self, row: Tensor, context: tuple[int, ...]) -> None:
        soften(row, context)

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        self.prefilled += sum(len(prompt.token_ids) for prompt in prompts)
        return super().mixed(token_ids, positions, slots, prompts)


class SoftSlots(ScriptedTarget):
    def __init__(self) -> None:
        super().__init__(lambda _: EOS, vocab_size=288, num_slots=4, max_model_len=LENGTH)

    def write(self, row: Tensor, context: tuple[int, ...]) -> None:
        soften(row, context)


Make = Callable[..., K7Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[K7Engine] = []

    def make(target: Soft | SoftSlots | None = None, *, queue: int = 32, caching: bool = True) -> K7Engine:
        target = target or Soft()
        options = EngineOptions(mask_pool_rows=128, max_num_seqs=target.num_slots, enable_prefix_caching=caching)
        engine = assemble(tiny_parts(target, options=options), EngineLimits("7", queue, 60_000, "tiny"))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
        seen = engine.snapshot()
        assert (seen.running, seen.waiting, seen.slots_used, seen.live_matchers, seen.blocks_held) == (0, 0, 0, 0, 0)


def request(**changes: Any) -> GenerationRequest:
    base = GenerationRequest(PROMPT, PLAIN, "tiny", max_tokens=40, sampling=WARM, return_token_ids=True)
    return replace(base, **changes)


def start(engine: K7Engine, wanted: GenerationRequest) -> tuple[str, Collector]:
    sink = Collector()
    return engine.submit(wanted, sink), sink


def run(engine: K7Engine, wanted: GenerationRequest) -> Collector:
    _, sink = start(engine, wanted)
    assert sink.done.wait(30)
    return sink


def of_choice(sink: Collector, choice: int) -> tuple[Any, ...]:
    """All that is told of one of several answers, as :func:`alone` tells it."""
    part = Collector([event for event in sink.events if event.choice == choice and not isinstance(event, Finish)])
    [end] = [event for event in part.events if isinstance(event, ChoiceEnd)]
    assert part.events[-1] == end, "something came behind the end of the choice"
    return part.token_ids, part.text, part.arguments, end.reason


def alone(engine: K7Engine, wanted: GenerationRequest, seed: int) -> tuple[Any, ...]:
    sink = run(engine, replace(wanted, n=1, sampling=replace(wanted.sampling, seed=seed)))
    return sink.token_ids, sink.text, sink.arguments, sink.finish.reason


KINDS: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "strict": {"constraint": CALL, "output": CALLS, "max_tokens": 75},
    "triggered": {"trigger": Trigger("<tool_call>", CALL), "output": CALLS, "max_tokens": 75},
    "stopped": {"stop": ("a1", "b", "h2")},
    "with likelihoods": {"logprobs": 2},
}


@pytest.mark.parametrize(("caching", "drafts"), [(True, "auto"), (False, "none")], ids=["prefix cache", "no cache"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_choice_is_what_it_would_be_alone(make: Make, kind: str, drafts: DraftSource, caching: bool) -> None:
    target = Soft()
    engine = make(target, caching=caching)
    wanted = request(n=5, drafts=drafts, **KINDS[kind])
    sink = run(engine, wanted)
    assert engine.snapshot().prompt_tokens == len(PROMPT)
    assert target.prefilled == len(PROMPT) - 1 + 4 * (len(PROMPT) - 1 - COMPLETE), "the prompt is written once"
    together = [of_choice(sink, choice) for choice in range(5)]
    assert together == [alone(engine, wanted, 40 + choice) for choice in range(5)]
    assert len({tuple(tokens) for tokens, *_ in together}) > 1
    assert [type(event) for event in sink.events].count(Start) == 1
    assert sink.finish.usage.prompt_tokens == len(PROMPT)
    stats = sink.finish.stats
    assert stats.seed == 40
    assert sum(stats.speculative_decoding.acceptance_histogram) == stats.steps
    assert sink.finish.reason == together[0][-1]


@pytest.mark.parametrize("kind", KINDS)
def test_seven_drafts_change_nothing(make: Make, kind: str) -> None:
    engine = make()
    wanted = request(n=4, **KINDS[kind])
    drafted, plain = run(engine, wanted), run(engine, replace(wanted, num_speculative_tokens=0))
    assert [of_choice(drafted, choice) for choice in range(4)] == [of_choice(plain, choice) for choice in range(4)]
    assert plain.finish.stats.speculative_decoding.num_draft_tokens == 0


def test_usage_counts_the_tokens_of_all(make: Make) -> None:
    sink = run(make(), request(n=4, ignore_eos=True, max_tokens=10))
    assert sink.finish.usage.completion_tokens == 40 == len(sink.token_ids)


def test_without_a_seed_one_is_made_up_and_told(make: Make) -> None:
    engine = make()
    wanted = request(n=2, sampling=SamplingParams(temperature=1.0))
    sink = run(engine, wanted)
    seed = sink.finish.stats.seed
    assert seed is not None
    assert [of_choice(sink, choice) for choice in (0, 1)] == [alone(engine, wanted, seed + choice) for choice in (0, 1)]
    assert run(engine, wanted).finish.stats.seed != seed


def test_the_last_seed_is_followed_by_the_first(make: Make) -> None:
    engine = make()
    wanted = request(n=2, sampling=replace(WARM, seed=2**64 - 1))
    sink = run(engine, wanted)
    assert [of_choice(sink, choice) for choice in (0, 1)] == [alone(engine, wanted, seed) for seed in (2**64 - 1, 0)]


def test_greedy_choices_are_equal(make: Make) -> None:
    sink = run(make(), request(n=3, sampling=SamplingParams()))
    assert of_choice(sink, 0) == of_choice(sink, 1) == of_choice(sink, 2)
    assert sink.finish.stats.seed is None


def test_more_choices_than_slots_and_than_blocks_come_all_the_same(make: Make) -> None:
    """Preemption among them changes no token."""
    wanted = request(n=6, ignore_eos=True, max_tokens=60)
    plenty, scarce = make(), make(Soft(blocks=WHOLE + 2, slots=3))
    expected = run(plenty, wanted)
    sink = run(scarce, wanted)
    assert scarce.snapshot().preemptions > 0
    assert [of_choice(sink, place) for place in range(6)] == [of_choice(expected, place) for place in range(6)]


def test_where_sequences_have_no_blocks_each_writes_the_prompt(make: Make) -> None:
    engine = make(SoftSlots())
    sink = run(engine, request(n=3))
    assert [of_choice(sink, choice) for choice in range(3)] == [alone(engine, request(), 40 + n) for n in range(3)]


def test_what_is_shared_without_a_prefix_cache_serves_no_other_request(make: Make) -> None:
    target = Soft()
    engine = make(target, caching=False)
    run(engine, request(n=2))
    before = target.prefilled
    run(engine, request())
    assert target.prefilled - before == len(PROMPT) - 1
    assert engine.snapshot().prefix_hit_tokens == 0


def test_a_cancel_ends_all(make: Make) -> None:
    engine = make()
    id, sink = start(engine, request(n=3, ignore_eos=True, max_tokens=90))
    until(lambda: bool(sink.token_ids))
    assert engine.cancel(id)
    assert sink.done.wait(20)
    assert sink.finish.reason == "cancelled"
    assert [event.choice for event in sink.events if isinstance(event, ChoiceEnd)] == [0, 1, 2]
    assert not engine.cancel(id)
    seen = engine.snapshot()
    assert (seen.requests_cancelled, seen.requests_finished, seen.requests_failed) == (1, 0, 0)


class Cancelling(Collector):
    """Cancels the request as soon as one of its answers has ended."""

    engine: K7Engine

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        super().send(events, final=final)
        if any(isinstance(event, ChoiceEnd) for event in events) and not final:
            assert isinstance(self.events[0], Start)
            self.engine.cancel(self.events[0].id)


def test_a_cancel_of_those_that_are_left_is_the_end_of_the_whole(make: Make) -> None:
    """The first answer has stopped by itself; the id is still good for the others."""
    sink = Cancelling()
    sink.engine = make()
    sink.engine.submit(request(n=4, max_tokens=90, stop=("d2",)), sink)
    assert sink.done.wait(20)
    reasons = [event.reason for event in sink.events if isinstance(event, ChoiceEnd)]
    assert reasons[0] == "stop"
    assert reasons[-1] == "cancelled"
    assert sink.finish.reason == "cancelled"


def test_a_deadline_ends_all(make: Make) -> None:
    sink = run(make(), request(n=3, deadline_ms=1, ignore_eos=True, max_tokens=90))
    assert sink.finish.reason == "deadline"
    assert {event.reason for event in sink.events if isinstance(event, ChoiceEnd)} == {"deadline"}


def test_a_constraint_that_does_not_compile_is_one_error_before_start(make: Make) -> None:
    engine = make()
    sink = run(engine, request(n=3, constraint=BROKEN))
    assert sink.error is not None
    assert sink.error.wire.code == codes.UNSUPPORTED_SCHEMA
    assert not sink.events
    assert engine.snapshot().requests_failed == 1


def test_a_choice_that_fails_ends_the_request(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    whole = of_choice(run(engine, request(n=3)), 1)[0]
    push, seen = Emitter.push, defaultdict[Emitter, list[int]](list)

    def faulty(emitter: Emitter, token: int, scored: Any = None) -> None:
        seen[emitter].append(token)
        if seen[emitter] == whole[:3]:
            raise EngineError("broken on purpose")
        push(emitter, token, scored)

    monkeypatch.setattr(Emitter, "push", faulty)
    sink = run(engine, request(n=3))
    last = sink.events[-1]
    assert isinstance(last, Failure)
    assert last.message == "broken on purpose"
    counts = engine.snapshot()
    assert (counts.requests_finished, counts.requests_failed) == (1, 1)


@pytest.mark.parametrize("n", [0, 39, 10**9])
def test_more_than_ever_fit_are_refused(make: Make, n: int) -> None:
    with pytest.raises(RequestError, match="from 1 to 38"):
        start(make(queue=32), request(n=n))


def test_choices_wait_in_the_queue_each_for_itself(make: Make) -> None:
    engine = make(queue=2)
    _, sink = start(engine, request(n=7, ignore_eos=True, max_tokens=90))
    with pytest.raises(OverloadedError):
        start(engine, request(n=2))
    assert sink.done.wait(30)


class Breaking(Collector):
    """Its third send raises."""

    sends = 0

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        self.sends += 1
        if self.sends == 3:
            raise OSError("gone")
        super().send(events, final=final)


def test_a_sink_that_raises_ends_all_of_its_choices_and_no_other_request(make: Make) -> None:
    engine = make()
    broken = Breaking()
    engine.submit(request(n=2, ignore_eos=True, max_tokens=90), broken)
    assert run(engine, request(n=2)).finish.reason in ("stop", "length")
    assert broken.done.wait(20)
    assert isinstance(broken.events[-1], Failure)


def test_silent_choices_are_pinged(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heptagram_backend.teller.PING_SECONDS", 0.0)
    sink = run(make(), request(n=2))
    assert any(isinstance(event, Ping) for event in sink.events)
