"""An adversarial model: random tokens under the mask. What it can write must parse, load and validate."""

from __future__ import annotations

import codecs
import json
import random
from functools import cache

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from numpy.typing import NDArray

from heptagram_backend.conversation import ToolChoice
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Text
from heptagram_backend.formats.chatml_json import ChatMLJson
from heptagram_backend.generation import OutputSpec
from tests.formats.samples import parse, request, tool, walked
from tests.formats.schemas import FAMILIES
from tests.formats.smollm2 import EOS, factory, token_bytes

WALKS = 30
MAX_TOKENS = 200
CLOSING = frozenset(b'"}]\n')


@cache
def closing_tokens() -> NDArray[np.bool_]:
    return np.array([bool(text) and set(text or b"") <= CLOSING for text in token_bytes()])


def walk(family: str, seed: int, *, bias: float) -> str | None:
    """One answer of random tokens; ``None`` when it did not end within ``MAX_TOKENS``."""
    dice = random.Random(seed)
    tools = (tool("other"), walked("f", FAMILIES[family].schema), tool("loose", {"type": "object"}, enforced=False))
    held = ChatMLJson().constrain(request(tools=tools, tool_choice=ToolChoice("required")))
    assert held.constraint is not None
    grammar = factory().matcher(held.constraint)
    row = np.zeros(-(-len(token_bytes()) // 32), np.int32)
    answer = b""
    try:
        for _ in range(MAX_TOKENS):
            assert grammar.fill(row)
            allowed = np.unpackbits(row.view(np.uint8), bitorder="little").view(np.bool_)
            if dice.random() < bias and (allowed & closing_tokens()).any():
                allowed &= closing_tokens()
            token = EOS if allowed[EOS] and dice.random() < 0.4 else int(dice.choice(np.flatnonzero(allowed)))
            assert grammar.accept(token)
            if token == EOS:
                return codecs.decode(answer, "utf-8")
            answer += token_bytes()[token] or b""
        return None
    finally:
        grammar.close()


def check(family: str, answer: str) -> None:
    pieces = parse(ChatMLJson().parser(OutputSpec("chatml_json", parse_calls=True)), answer)
    assert len(pieces) % 3 == 0
    for begin, arguments, finished in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        assert isinstance(begin, CallBegin)
        assert isinstance(arguments, CallArguments)
        assert isinstance(finished, CallFinished)
        value = json.loads(arguments.text)
        if begin.name == "f":
            Draft202012Validator(FAMILIES[family].schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
                value
            )
        else:
            assert begin.name in ("other", "loose")
            assert isinstance(value, dict)


@pytest.mark.parametrize("bias", [0.0, 0.4])
def test_what_can_be_generated_is_read_and_valid(bias: float, capsys: pytest.CaptureFixture[str]) -> None:
    finished = total = 0
    for family in FAMILIES:
        for seed in range(WALKS):
            total += 1
            answer = walk(family, seed, bias=bias)
            if answer is not None:
                finished += 1
                check(family, answer)
    with capsys.disabled():
        print(f"\n  random walks, bias {bias} to closing: {finished} of {total} calls finished, all of them valid")  # noqa: T201
    if bias:
        assert finished >= 0.8 * total


def test_text_before_calls_is_read_too() -> None:
    """Free text under ``auto`` with a strict tool never holds the marker, so no call hides in it."""
    held = ChatMLJson().constrain(request(tools=(tool("f"),)))
    assert held.constraint is not None
    marker = b"<tool_call>"
    wished = [token for token, text in enumerate(token_bytes()) if text and marker.startswith(text)]
    space = token_bytes().index(b" ")
    for seed in range(10):
        dice, grammar = random.Random(seed), factory().matcher(held.constraint)
        answer = b""
        while not grammar.terminated and len(answer) < 400:
            # The adversary goes on with the marker wherever it may.
            for token in [*dice.sample(wished, len(wished)), EOS, space]:
                if grammar.accept(token):
                    answer += token_bytes()[token] or b""
                    break
        grammar.close()
        text, _, calls = answer.decode().partition("<tool_call>")
        pieces = parse(ChatMLJson().parser(OutputSpec("chatml_json", parse_calls=True)), answer.decode())
        assert pieces[:1] == ([Text(text)] if text else pieces[:1])
        assert not calls or calls.startswith('\n{"name": "f", "arguments": {')
