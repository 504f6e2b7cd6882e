from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.errors import RolloutError
from heptagram_backend.rollout.canary import BUILT_IN, Case, read_suite

FINISH = {"type": "finish", "reason": "tool_calls"}


def call(arguments: str, name: str = "shell") -> list[dict[str, Any]]:
    return [
        {"type": "call_start", "index": 0, "id": "1", "name": name},
        {"type": "arguments_delta", "index": 0, "text": arguments},
        {"type": "call_end", "index": 0},
        FINISH,
    ]


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        (call('{"command": "ls"}'), None),
        (call('{"command": 1}'), "are invalid"),
        (call('{"command": "l'), "are invalid"),
        (call('{"command": "ls"}', "other"), "calls other instead of shell"),
        ([FINISH], "calls nothing"),
        ([{"type": "failure", "message": "out of memory"}], "out of memory"),
        ([], "nothing"),
    ],
)
def test_the_built_in_call(events: list[dict[str, Any]], wrong: str | None) -> None:
    found = BUILT_IN[0].judge(events)
    assert found is None if wrong is None else found is not None and wrong in found


def test_a_text_must_be_held() -> None:
    case = Case("x", {}, text="Paris")
    told = [{"type": "text_delta", "text": "Pa"}, {"type": "text_delta", "text": "ris."}, FINISH]
    assert case.judge(told) is None
    assert "without 'Paris'" in str(case.judge([FINISH]))


def test_a_suite_is_read(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    path.write_text('{"request": {"messages": []}, "calls": ["a", "b"]}\n\n{"request": {}, "text": "x"}\n')
    first, second = read_suite(path)
    assert (first.name, first.calls, first.text) == ("suite.jsonl:1", ("a", "b"), None)
    assert (second.name, second.calls, second.text) == ("suite.jsonl:3", None, "x")


@pytest.mark.parametrize("line", ["{", "[]", '{"request": {}, "call": []}', "{}"])
def test_a_suite_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "suite.jsonl"
    path.write_text(line)
    with pytest.raises(RolloutError, match="each line must be an object"):
        read_suite(path)
