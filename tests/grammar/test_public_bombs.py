"""Schemas that froze other servers, where an operator has lifted the limits of size: the child is the last guard.

Sources: https://github.com/vllm-project/vllm/pull/25188, https://github.com/ggml-org/llama.cpp/pull/25308
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import psutil
import pytest

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.errors import RequestError
from heptagram_backend.schema import Budget, SchemaLimits, walk
from heptagram_backend.trial import Trial
from heptagram_backend.xgrammar_impl import XGrammarFactory
from heptagram_wire import errors as codes
from tests.grammar.test_compile import STOP, TOKENS, WAIT, WIDTH, setup

_LIFTED = SchemaLimits(**{field.name: 10**9 for field in fields(SchemaLimits) if field.name != "depth"}, depth=40)


def walked(schema: Any) -> ConstraintSpec:
    return ConstraintSpec.json_schema(walk(schema, "parameters", Budget(_LIFTED)))


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial(setup(seconds=0.5))
    yield made
    made.close()
    assert not psutil.Process().children()


@pytest.fixture
def compiler(trial: Trial) -> GrammarCompiler:
    """Its trial is the module's, so it is not closed here; nothing is left in its lanes."""
    return GrammarCompiler(XGrammarFactory([*TOKENS, None], WIDTH, [STOP]), lambda: None, trial, WIDTH)


def outcome(compiler: GrammarCompiler, spec: ConstraintSpec) -> str:
    """``admitted``, or the code of the refusal."""
    try:
        compiler.start(spec).result(WAIT).close()
    except RequestError as error:
        return error.wire.code
    return "admitted"


def _texts(count: int) -> list[str]:
    chooser = random.Random(0)
    return ["".join(chooser.choices(string.ascii_letters, k=40)) for _ in range(count)]


def test_an_enum_of_many_thousand_texts_ends_a_child(compiler: GrammarCompiler, trial: Trial) -> None:
    trial.refusal(ConstraintSpec("json_schema", "{}"), "")
    first = trial.pid
    assert first is not None
    assert outcome(compiler, walked({"enum": _texts(20_000)})) == codes.GRAMMAR_TOO_COSTLY
    assert not psutil.pid_exists(first)
    assert trial.pid is not None


def test_many_tools_with_many_optional_properties_are_bounded(compiler: GrammarCompiler) -> None:
    one = {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(64)}}
    tools = [{"type": "object", "properties": {f"t{place}": one}, "required": [f"t{place}"]} for place in range(256)]
    assert outcome(compiler, walked({"anyOf": tools})) in ("admitted", codes.GRAMMAR_TOO_COSTLY)


def test_ever_new_schemas_do_not_fill_the_memory() -> None:
    limit = 200_000
    factory = XGrammarFactory([*TOKENS, None], WIDTH, [STOP], cache_limit_bytes=limit)
    specs = [walked({"type": "object", "properties": {f"p{place}": {"type": "string"}}}) for place in range(300)]
    compiled: list[Any] = [factory.compile(spec) for spec in specs]
    sizes = [grammar.memory_size_bytes for grammar in compiled]
    held = [size for spec, size in zip(specs, sizes, strict=True) if factory.holds(spec)]
    assert sum(sizes) > 2 * limit
    assert 0 < sum(held) <= limit
    assert factory.holds(specs[-1])
    assert not factory.holds(specs[0])


@pytest.mark.parametrize(
    "pattern",
    [
        "^A{1000000}$",
        "^(A{1000}){1000}$",
        "^(a+)+$",
        "^(a|aa)*b$",
        "^.{0,65535}$",
        "^(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}$",
    ],
)
def test_hostile_patterns_are_refused_or_compiled_within_the_limits(compiler: GrammarCompiler, pattern: str) -> None:
    try:
        spec = walked({"type": "string", "pattern": pattern})
    except RequestError as error:
        found = error.wire.code
    else:
        found = outcome(compiler, spec)
    assert found in codes.SIZE_CODES | {codes.UNSUPPORTED_SCHEMA, "admitted"}


def test_a_length_of_a_milliard_is_lowered_or_refused(compiler: GrammarCompiler) -> None:
    usual = ConstraintSpec.json_schema(walk({"type": "string", "maxLength": 10**9}, "parameters"))
    assert outcome(compiler, usual) == "admitted"


def test_a_long_value_is_matched_without_going_back() -> None:
    factory = XGrammarFactory([*TOKENS, None], WIDTH, [STOP])
    grammar = factory.matcher(walked({"type": "string", "pattern": "^(a|aa)*b$"}))
    assert grammar.accept_text(json.dumps("a" * 100_000 + "b").encode())
    assert grammar.completed
    grammar.close()


@pytest.mark.parametrize("pattern", ["([a-z]+,)+", "((a|b)+,)+"])
def test_a_request_whose_tokens_take_ever_longer_is_ended(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that may begin anywhere is tried from each character on: 1.5 ms for the 400th of the first one."""
    monkeypatch.setattr("heptagram_backend.grammar_cost._ALLOWANCE_S", 0.05)
    monkeypatch.setattr("heptagram_backend.grammar_cost._PER_OPERATION_S", 0.00002)
    grammar = XGrammarFactory([*TOKENS, None], WIDTH, [STOP]).matcher(walked({"type": "string", "pattern": pattern}))
    assert grammar.accept(ord('"'))
    with pytest.raises(RequestError) as caught:
        _write(grammar, 100_000)
    assert caught.value.wire.code == codes.GRAMMAR_TOO_COSTLY
    grammar.close()


def _write(grammar: Grammar, count: int) -> None:
    for _ in range(count):
        assert grammar.accept(ord("a"))


def test_a_request_whose_tokens_stay_cheap_goes_on() -> None:
    grammar = XGrammarFactory([*TOKENS, None], WIDTH, [STOP]).matcher(walked({"type": "string", "maxLength": 16_000}))
    assert grammar.accept(ord('"'))
    row = np.zeros(-(-WIDTH // 32), np.int32)
    for _ in range(15_000):
        assert grammar.accept(ord("a"))
        grammar.fill(row)
    grammar.close()
