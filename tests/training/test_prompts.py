"""What is learnt from: varied, valid, drawn from a seed, and never what is asked at the end."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import heptagram_backend.training
from heptagram_backend.training import bfcl
from heptagram_backend.training.example import Example
from heptagram_backend.training.prompts import Prompts, chat_prompts, learnable
from heptagram_backend.training.tools import own_tools
from heptagram_backend.training.values import declared

GROUPS = 250
INSTALLED = pytest.mark.skipif(
    bfcl.data_folder() is None, reason=f"BFCL v4 is not installed; pip install --no-deps {bfcl.REQUIREMENT}"
)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    prompts = Prompts(seed=5, bfcl=False)
    return [example for index in range(GROUPS) for example in prompts.group(index)]


def schemas(example: Example) -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in example.tools}


def test_there_are_many_tools_and_none_is_both_learnt_and_held_back() -> None:
    learnt, held = ({tool.name for tool in own_tools(held=held)} for held in (False, True))
    assert len(learnt) >= 150
    assert len(held) >= 20
    assert not learnt & held
    assert len({tool.domain for tool in own_tools(held=False)}) >= 15


def test_kinds_of_arguments_vary() -> None:
    types = Counter(
        "enum" if "enum" in schema else schema["type"]
        for tool in own_tools(held=False)
        for schema in map(declared, tool.takes.values())
    )
    assert all(types[kind] >= 10 for kind in ("string", "integer", "boolean", "array", "enum"))
    assert types["number"] >= 10
    assert types["object"] >= 5


def test_answers_fit_the_declared_schemas_in_declared_order(examples: list[Example]) -> None:
    for example in examples:
        known = schemas(example)
        assert example.text or example.calls
        for call in example.calls:
            Draft202012Validator.check_schema(known[call.name])
            Draft202012Validator(known[call.name]).validate(dict(call.arguments))
            order = list(known[call.name]["properties"])
            assert list(call.arguments) == [name for name in order if name in call.arguments]


def test_what_is_asked_says_what_is_answered(examples: list[Example]) -> None:
    for example in (each for each in examples if len(each.calls) == 1):
        asked = [message["content"] for message in example.request["messages"] if message["role"] == "user"][-1]
        assert "{" not in asked
        for value in example.calls[0].arguments.values():
            if not isinstance(value, bool | dict | list):
                assert str(value).lower() in asked.lower()


def test_every_kind_of_answer_occurs(examples: list[Example]) -> None:
    asks = Counter(
        "result" if any(message["role"] == "tool" for message in example.request["messages"]) else len(example.calls)
        for example in examples
    )
    assert min(asks["result"], asks[0], asks[1], asks[2]) >= 0.05 * len(examples)
    assert asks[1] > asks[2] > asks[0]


def test_wording_and_style_vary(examples: list[Example]) -> None:
    texts = [example.request["messages"][-1].get("content") for example in examples]
    assert len(set(texts)) > 0.95 * len(texts)
    names = {name for example in examples for name in schemas(example)}
    assert all(
        any(re.fullmatch(style, name) for name in names) for style in ("[a-z]+[A-Z].*", "[a-z]+_[a-z_]+", ".*-.*")
    )


def test_a_group_is_the_same_whatever_came_before() -> None:
    one, other = Prompts(seed=3), Prompts(seed=3)
    later = [one.group(index) for index in range(6)][5]
    assert other.group(5) == later
    assert Prompts(seed=4).group(5) != later


def test_groups_of_talk_are_the_bases_own_answers() -> None:
    said = [Example("chat", request, "Hm.") for request in chat_prompts()]
    groups = [Prompts(seed=1, chat=said, bfcl=False).group(index) for index in range(200)]
    talk = [example for group in groups for example in group if example.source == "chat"]
    assert len(talk) > 40
    assert {example.text for example in talk} == {"Hm."}
    assert any(example.tools for example in talk)
    assert not all(example.tools for example in talk)


def test_held_prompts_show_only_tools_that_training_never_does() -> None:
    held = {tool.about for tool in own_tools(held=True)}
    for index in range(20):
        for example in Prompts(seed=0, held=True).group(index):
            assert {tool["function"]["description"] for tool in example.tools} <= held


@INSTALLED
def test_learnt_records_are_of_the_live_files_and_answered_validly() -> None:
    categories = Counter(record.category for record in learnable())
    assert set(categories) <= set(bfcl.TRAINING)
    assert categories["live_simple"] > 200
    for record in learnable():
        known = schemas(record.example())
        for call in record.example().calls:
            Draft202012Validator(known[call.name]).validate(dict(call.arguments))


@INSTALLED
def test_nothing_that_is_asked_at_the_end_is_ever_drawn() -> None:
    asked = {
        message["content"]
        for category in bfcl.EVALUATION
        for record in bfcl.records(category)
        for message in record.messages
    }
    seen = {
        message["content"]
        for index in range(400)
        for example in Prompts(seed=9).group(index)
        for message in example.request["messages"]
        if message.get("content")
    }
    assert any(record.messages[-1]["content"] in seen for record in learnable())
    assert not seen & asked
    assert not {record.messages[-1]["content"] for record in learnable()} & asked


def test_training_names_no_file_of_the_evaluation() -> None:
    """The split rule: what evaluates may read them, nothing else of the package can."""
    assert not set(bfcl.TRAINING) & set(bfcl.EVALUATION)
    assert all(category.startswith("live_") for category in bfcl.TRAINING)
    folder = Path(heptagram_backend.training.__file__).parent
    readers = {path.name for path in folder.glob("*.py") if "EVALUATION" in path.read_text(encoding="utf-8")}
    assert readers <= {"bfcl.py", "evaluate.py"}
    assert "evaluate" not in "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("prompts.py", "train.py", "run.py", "chat.py")
    )
