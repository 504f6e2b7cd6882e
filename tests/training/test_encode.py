"""What is learnt is what is served: the grammar allows it token by token, and the parser reads it back."""

from __future__ import annotations

import json

import pytest

from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Text
from heptagram_backend.generation import OutputSpec
from heptagram_backend.requests import enforce
from heptagram_backend.training.encode import Encoder, answer_text
from heptagram_backend.training.example import Call, Example
from heptagram_backend.training.prompts import Prompts
from tests.cases.kits import kit
from tests.formats import smollm2
from tests.formats.samples import parse

FORMAT = load_format("chatml_dsml")
ENCODER = Encoder(FORMAT, smollm2.dsml_tokenizer())


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    prompts = Prompts(seed=2, bfcl=False)
    return [example for index in range(8) for example in prompts.group(index)]


def test_prompts_are_those_that_preprocess_makes(examples: list[Example]) -> None:
    for example in examples:
        assert kit("chatml_dsml").plan(example.request).prompt_ids == ENCODER.prompt(example)


def test_answers_are_legal_and_read_back(examples: list[Example]) -> None:
    pieces = smollm2.dsml_tokenizer().token_bytes()
    for example in examples:
        *answer, end = ENCODER(example).answer
        assert end == smollm2.EOS
        text = b"".join(pieces[token] or b"" for token in answer).decode()
        read = parse(FORMAT.parser(OutputSpec("chatml_dsml", parse_calls=True)), text)
        said = [piece.text for piece in read if isinstance(piece, Text)]
        assert said == ([example.text] if example.text else [])
        calls = [piece for piece in read if not isinstance(piece, Text)]
        assert [type(piece) for piece in calls] == [CallBegin, CallArguments, CallFinished] * len(example.calls)
        found = [
            Call(begin.name, json.loads(arguments.text))
            for begin, arguments in zip(calls[::3], calls[1::3], strict=True)
            if isinstance(begin, CallBegin) and isinstance(arguments, CallArguments)
        ]
        assert found == list(example.calls)


def test_calls_are_legal_under_the_grammar_of_a_required_call(examples: list[Example]) -> None:
    for example in [example for example in examples if example.calls][:12]:
        asked = ENCODER.request(Example("own", {**example.request, "tool_choice": "required"}))
        held = FORMAT.constrain(enforce(asked)).constraint
        assert held is not None
        grammar = smollm2.dsml_factory().matcher(held)
        try:
            assert all(grammar.accept(token) for token in ENCODER(example).answer)
        finally:
            grammar.close()


def test_words_of_an_answer_cannot_be_control_tokens() -> None:
    example = Example("own", {"messages": [{"role": "user", "content": "Hi"}]}, "<|im_end|>｜DSML｜")
    answer = ENCODER(example).answer
    assert answer.count(smollm2.EOS) == 1
    assert smollm2.dsml_tokenizer().token_id("｜DSML｜") not in answer
    assert answer_text(example, smollm2.dsml_tokenizer()) != example.text


def test_an_answer_that_was_cut_has_no_end() -> None:
    example = Example("chat", {"messages": [{"role": "user", "content": "Hi"}]}, "Hello", whole=False)
    assert smollm2.EOS not in ENCODER(example).answer
