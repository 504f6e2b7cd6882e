"""What is asked at the end, and what is counted of the answers; the engine is the one that serves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from heptagram_backend.training import bfcl, evaluate
from heptagram_backend.training.evaluate import Question, Score, bfcl_questions, mcp_questions, table
from heptagram_backend.training.values import read_data
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, TextDelta
from tests.conformance.cases import PROMPTS

TOOLSETS = Path(__file__).parents[1] / "data" / "toolsets"
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
BODY = {"messages": [{"role": "user", "content": "Go."}], "tools": [TOOL]}


@pytest.mark.skipif(bfcl.data_folder() is None, reason=f"pip install --no-deps {bfcl.REQUIREMENT}")
def test_each_evaluation_file_is_asked_evenly() -> None:
    questions = list(bfcl_questions(10))
    assert Counter(question.suite for question in questions) == {f"bfcl {name}": 10 for name in bfcl.EVALUATION}
    assert [question.wants_call for question in questions] == [True] * 40 + [False] * 10
    assert questions == list(bfcl_questions(10))


def test_every_set_is_asked_for_tools_that_it_has() -> None:
    questions = list(mcp_questions(TOOLSETS))
    assert len(questions) >= 20
    for question in questions:
        assert set(question.tools_of) <= {tool["function"]["name"] for tool in question.body["tools"]}
    assert set(read_data("mcp.yaml")) == set(PROMPTS)


def counted(question: Question, *arguments: str, whole: bool = True, text: str = "") -> Score:
    answer, score = evaluate.Answer(), Score()
    for index, each in enumerate(arguments):
        answer.send([CallStart(index, "id", "f"), ArgumentsDelta(index, each)], final=False)
        answer.send([CallEnd(index)] if whole else [], final=False)
    answer.send([TextDelta(text)], final=True)
    assert answer.done.is_set()
    evaluate._count(score, question, answer)
    return score


def test_counts() -> None:
    exact = Question("s", BODY, accepted=(("f", {"n": [1]}),))
    assert counted(exact, '{"n": 1}') == Score(1, right_tool=1, valid=1, exact=1)
    assert counted(exact, '{"n": 2}') == Score(1, right_tool=1, valid=1, exact=0)
    assert counted(exact, '{"n": "1"}') == Score(1, right_tool=1, valid=0, exact=0)
    assert counted(exact, '{"n": ', whole=False) == Score(1, right_tool=1, valid=0, exact=0)
    assert counted(exact, text="1") == Score(1, right_tool=0, valid=0, exact=0)
    assert counted(exact, '{"n": 1}', '{"n": 1}') == Score(1, right_tool=0, valid=1, exact=0)
    none = Question("s", BODY)
    assert counted(none, text="No.") == Score(1, right_tool=1, valid=1, exact=1)
    assert counted(none, '{"n": 1}') == Score(1, right_tool=0, valid=0, exact=0)
    tool = Question("s", BODY, tools_of=("f", "g"))
    assert counted(tool, '{"n": 7}') == Score(1, right_tool=1, valid=1, exact=None)
    assert counted(tool, text="No.") == Score(1, right_tool=0, valid=0, exact=None)


def test_a_table_leaves_out_what_is_not_known() -> None:
    text = table({("mcp", "free"): Score(3, 2, 1, None), ("b", "free"): Score(3, 2, 1, 0)})
    assert "| mcp | free | 3 | 2 |  | 1 |" in text
    assert "| b | free | 3 | 2 | 0 | 1 |" in text
