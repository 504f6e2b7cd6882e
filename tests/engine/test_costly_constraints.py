"""Costly constraints in the engine: the others go on, a bomb is a 400 before anything was sent, a cancel is at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import assemble, make_parts
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.limits import GrammarLimits
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.xgrammar_impl import XGrammarFactory, XGrammarMatcher
from heptagram_wire.events import Failure
from tests.engine.harness import EOS, Collector, tiny_encode, tiny_factory, tiny_vocabulary

PROMPT = tuple(tiny_encode("prompt: "))
CHEAP = ConstraintSpec("json_schema", '{"const": "yes"}')
COSTLY = ConstraintSpec("json_schema", json.dumps({"enum": [f"{place:040}" for place in range(1_200)]}))
_COUNTED = {
    "type": "object",
    "properties": {f"p{place}": {"type": "string"} for place in range(64)},
    "required": [],
    "additionalProperties": False,
    "minProperties": 3,
    "maxProperties": 40,
}
BOMB = ConstraintSpec("json_schema", json.dumps({"type": "array", "prefixItems": [_COUNTED] * 60, "items": False}))
WAIT = 60

Make = Callable[[float], K7Engine]


def says(text: str) -> Callable[[tuple[int, ...]], int]:
    answer = tiny_encode(text)
    return lambda tokens: answer[place] if 0 <= (place := len(tokens) - len(PROMPT)) < len(answer) else EOS


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[K7Engine] = []

    def build(seconds: float) -> K7Engine:
        target = ScriptedTarget(says("hello"), vocab_size=288, num_slots=4, max_model_len=256)
        parts = make_parts(
            target=target,
            vocabulary=tiny_vocabulary(),
            factory=tiny_factory(target.vocab_size),
            options=EngineOptions(mask_pool_rows=128),
            limits=GrammarLimits(compile_seconds=seconds),
        )
        made.append(assemble(parts, EngineLimits("7", 8, 600_000, "tiny")))
        return made[-1]

    yield build
    for engine in made:
        engine.close()
        assert engine.snapshot().live_matchers == 0
    assert not psutil.Process().children()


def ask(engine: K7Engine, constraint: ConstraintSpec | None) -> tuple[str, Collector]:
    sink = Collector()
    asked = GenerationRequest(
        prompt_ids=PROMPT,
        output=OutputSpec("chatml_json"),
        model="tiny",
        max_tokens=60,
        constraint=constraint,
        num_speculative_tokens=7,
        drafts="auto",
    )
    return engine.submit(asked, sink), sink


def others_are_served(engine: K7Engine) -> None:
    for constraint, text in ((None, "hello"), (CHEAP, '"yes"')):
        _, sink = ask(engine, constraint)
        assert sink.done.wait(WAIT)
        assert sink.text == text


def test_others_are_served_while_a_costly_one_compiles(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()
    matcher = XGrammarFactory.matcher

    def slow(self: XGrammarFactory, spec: ConstraintSpec) -> XGrammarMatcher:
        if spec == COSTLY:
            entered.set()
            assert go.wait(WAIT)
        return matcher(self, spec)

    monkeypatch.setattr(XGrammarFactory, "matcher", slow)
    engine = make(30)
    _, sink = ask(engine, COSTLY)
    assert entered.wait(WAIT)
    others_are_served(engine)
    assert not sink.events
    go.set()
    assert sink.done.wait(WAIT)
    assert len(sink.text) == 42


def test_a_bomb_is_refused_before_anything_was_sent(make: Make) -> None:
    engine = make(0.5)
    for _ in range(2):
        _, sink = ask(engine, BOMB)
        others_are_served(engine)
        assert sink.done.wait(WAIT)
        assert isinstance(sink.error, RequestError)
        assert sink.error.wire.code == "grammar_too_costly"


def test_a_request_whose_tokens_take_ever_longer_fails_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(30)
    others_are_served(engine)  # it is compiled
    monkeypatch.setattr("heptagram_backend.grammar_cost._ALLOWANCE_S", 0.0)
    monkeypatch.setattr("heptagram_backend.grammar_cost._PER_OPERATION_S", 0.0)
    _, sink = ask(engine, CHEAP)
    _, other = ask(engine, None)
    assert sink.done.wait(WAIT)
    assert other.done.wait(WAIT)
    failure = sink.events[-1]
    assert isinstance(failure, Failure)
    assert failure.code == "grammar_too_costly"
    assert other.text == "hello"


def test_a_cancel_does_not_wait_for_a_trial(make: Make) -> None:
    engine = make(600)
    first, sink = ask(engine, BOMB)
    second, queued = ask(engine, ConstraintSpec("json_schema", BOMB.source + " "))
    others_are_served(engine)
    for id, waiting in ((second, queued), (first, sink)):
        assert engine.cancel(id)
        assert waiting.done.wait(WAIT)
        assert waiting.finish.reason == "cancelled"
    others_are_served(engine)
    assert engine.snapshot().slots_used == 0
