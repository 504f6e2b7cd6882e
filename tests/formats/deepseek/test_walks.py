"""Grammar and parser agree: an adversarial model's answers are read and valid, and valid arguments can be generated.

The adversary draws tokens at random under the mask, with a taste for pieces of the markup. Long runs are marked full.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from numpy.typing import NDArray

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import Message, PastCall, ToolChoice
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Parsed, Reasoning
from heptagram_backend.formats.deepseek_v4 import DeepSeekV4
from heptagram_backend.formats.deepseek_v4.encode import render
from heptagram_backend.formats.deepseek_v4.family import DsmlFormat
from heptagram_backend.formats.deepseek_v4.markup import ASSISTANT, EOS, THINK_END
from heptagram_backend.formats.deepseek_v4.mode import read_mode
from heptagram_backend.formats.deepseek_v4_1 import DeepSeekV41
from heptagram_backend.generation import OutputSpec
from tests.formats.deepseek.families import FAMILIES
from tests.formats.deepseek.grammar import EOS as EOS_ID
from tests.formats.deepseek.grammar import accepts, factory, token_bytes
from tests.formats.deepseek.tokenizers import tokenizer
from tests.formats.samples import call, parse, request, tool, walked

FORMATS: dict[str, DsmlFormat] = {"v4": DeepSeekV4(), "v4_1": DeepSeekV41()}
MAX_TOKENS = 400
MARKUP = b'\n\n</\xef\xbd\x9cDSML\xef\xbd\x9cparameter>\n<\xef\xbd\x9cDSML\xef\xbd\x9c invoke name="f" string="true">'


@cache
def constraint(version: str, family: str, *, thinking: bool, alone: bool = True) -> ConstraintSpec:
    """One call or more of a tool of the family; or also of one without parameters and one that is not enforced."""
    others = () if alone else (tool("other"), tool("loose", {"type": "object"}, enforced=False))
    tools = (walked("f", FAMILIES[family].schema), *others)
    asked = request(tools=tools, tool_choice=ToolChoice("required"), chat_template_kwargs={"thinking": thinking})
    held = FORMATS[version].constrain(asked).constraint
    assert held is not None
    return held


@cache
def tokens_within(text: bytes) -> NDArray[np.int64]:
    return np.array([token for token, piece in enumerate(token_bytes()) if piece and piece in text])


class Adversary:
    """Draws allowed tokens; with ``bias`` it rather ends what is open."""

    def __init__(self, seed: int, bias: float, *, thinking: bool) -> None:
        self._dice = random.Random(seed)
        self._draw = np.random.default_rng(seed)
        self._bias = bias
        self._thinking = thinking

    def token(self, row: NDArray[np.int32]) -> int:
        def allowed(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
            return tokens[np.flatnonzero(row[tokens // 32] >> (tokens % 32) & 1)]

        if allowed(np.array([EOS_ID])).size and self._dice.random() < 0.5:
            return EOS_ID
        chance = self._dice.random()
        if chance < self._bias and self._thinking:
            self._thinking = False
            return int(token_bytes().index(THINK_END.encode()))
        for ending in endings() if chance < self._bias else ():
            if (found := allowed(ending)).size:
                return int(self._draw.choice(found))
        if chance > 0.85 and (found := allowed(tokens_within(MARKUP))).size:
            return int(self._draw.choice(found))
        if (found := allowed(self._draw.integers(0, len(token_bytes()), 64))).size:
            return int(found[0])
        words = np.flatnonzero(row)
        return int(self._draw.choice(allowed((words[:, None] * 32 + np.arange(32)).ravel())))


@cache
def endings() -> tuple[NDArray[np.int64], ...]:
    """What ends something, the furthest first."""
    single = [np.array([token_bytes().index(end)]) for end in ("｜DSML｜".encode(), b"</")]
    return (*single, tokens_within(b'"]}'))


def walk(spec: ConstraintSpec, adversary: Adversary) -> list[int] | None:
    """One answer; ``None`` when it did not end within ``MAX_TOKENS``."""
    grammar = factory().matcher(spec)
    row = np.zeros(-(-len(token_bytes()) // 32), np.int32)
    answer: list[int] = []
    try:
        while len(answer) < MAX_TOKENS:
            assert grammar.fill(row)
            assert row.any()
            answer.append(adversary.token(row))
            assert grammar.accept(answer[-1])
            if answer[-1] == EOS_ID:
                return answer[:-1]
        return None
    finally:
        grammar.close()


def read(version: str, answer: list[int], *, thinking: bool) -> list[Parsed]:
    """As the engine reads it, token by token."""
    output = OutputSpec(FORMATS[version].name, parse_calls=True, starts_in_reasoning=thinking)
    detokenizer = Detokenizer(token_bytes())
    chunks = [detokenizer.feed(token) for token in answer]
    pieces = parse(FORMATS[version].parser(output), *chunks, detokenizer.flush())
    assert pieces == parse(FORMATS[version].parser(output), "".join(chunks) + detokenizer.flush())
    return pieces


def check(version: str, family: str, pieces: list[Parsed]) -> None:
    """All is whole and valid; a name that a loose call gives twice is the one thing that is not read."""
    for place in range(0, len(pieces), 3):
        begin, arguments, finished = [*pieces[place : place + 3], None][:3]
        assert isinstance(begin, CallBegin)
        assert isinstance(arguments, CallArguments)
        if begin.name == "loose" and not isinstance(finished, CallFinished):
            return
        assert isinstance(finished, CallFinished)
        value = json.loads(arguments.text, object_pairs_hook=_pairs)
        if begin.name == "f":
            schema = FAMILIES[family].schema
            Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
        else:
            assert begin.name == "loose" or (begin.name == "other" and value == {})


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def rendered(version: str, name: str, arguments: str) -> str:
    """The call as the encoder writes it into a later prompt."""
    made = FORMATS[version]
    past = Message("assistant", None, calls=(PastCall("c", name, arguments),))
    asked = request(Message("user", "Go."), past)
    text = render(asked, read_mode(asked, made.conventions), made.dialect, str)
    return text.partition(f"{ASSISTANT}{THINK_END}")[2].partition(EOS)[0]


def run(version: str, walks: int, bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    finished = again = total = 0
    for family in FAMILIES:
        for seed in range(walks):
            thinking, alone = seed % 4 == 3, seed % 4 != 2
            total += 1
            answer = walk(
                constraint(version, family, thinking=thinking, alone=alone), Adversary(seed, bias, thinking=thinking)
            )
            if answer is None:
                continue
            finished += 1
            pieces = read(version, answer, thinking=thinking)
            if thinking:
                pieces = pieces[1:] if isinstance(pieces[0], Reasoning) else pieces
            else:
                assert b"".join(token_bytes()[token] or b"" for token in answer).decode()  # well-formed UTF-8
            check(version, family, pieces)
            again += accepts_again(version, family, pieces)
    with capsys.disabled():
        print(f"\n  {version}, bias {bias} to closing: {finished} of {total} walks ended, all read and valid;", end="")  # noqa: T201
        print(f" {again} of the enforced calls rendered and accepted again")  # noqa: T201
    assert not bias or finished >= 0.8 * total


def accepts_again(version: str, family: str, pieces: list[Parsed]) -> int:
    """Render the enforced calls as history and ask the grammar; numbers may be spelled otherwise there."""
    count = 0
    for begin, arguments in zip(pieces[::3], pieces[1::3], strict=False):
        assert isinstance(begin, CallBegin)
        if isinstance(arguments, CallArguments) and begin.name == "f":
            text = rendered(version, "f", arguments.text)
            assert accepts(constraint(version, family, thinking=False), text), (text, arguments.text)
            count += 1
    return count


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_what_can_be_generated_is_read_and_valid(bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    run("v4", 4 if bias else 2, bias, capsys)


@pytest.mark.parametrize("family", ["lengths", "raw text", "bounded text"])
def test_budgets_are_rolled_back_exactly(family: str) -> None:
    """Masks behind a rollback are those of a matcher that never went astray."""
    spec = constraint("v4", family, thinking=False)
    adversary, dice = Adversary(1, 0.2, thinking=False), random.Random(1)
    straight, astray = factory().matcher(spec), factory().matcher(spec)
    rows = np.zeros((2, -(-len(token_bytes()) // 32)), np.int32)
    for _ in range(80):
        assert straight.fill(rows[0])
        assert astray.fill(rows[1])
        assert (rows[0] == rows[1]).all()
        steps = 0
        for _ in range(dice.randrange(8)):
            token = adversary.token(rows[1])
            if token == EOS_ID:
                break
            assert astray.accept(token)
            steps += 1
            assert astray.fill(rows[1])
        astray.rollback(steps)
        token = adversary.token(rows[0])
        if token == EOS_ID:
            break
        assert straight.accept(token)
        assert astray.accept(token)
    straight.close()
    astray.close()


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_two_hundred_walks_of_each_family(version: str, bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    run(version, 200, bias, capsys)


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_valid_arguments_can_be_generated_and_are_read_back(family: str, data: st.DataObject) -> None:
    value = data.draw(FAMILIES[family].values)
    for version in FORMATS:
        arguments = json.dumps(value, ensure_ascii=False)
        text = rendered(version, "f", arguments)
        assert accepts(constraint(version, family, thinking=False), text), text
        # No control token can be generated, so what is spelled like one comes in plain pieces.
        spelled = rendered(version, "f", tokenizer("v4").guarded(arguments))
        pieces = read(version, tokenizer("v4").encode(spelled), thinking=False)
        assert pieces == call("f", arguments)
