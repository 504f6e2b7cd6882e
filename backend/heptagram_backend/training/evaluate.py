"""What a model has learnt, asked as it is served: BFCL's evaluation files and real MCP sets, through the engine.

=============  ===========================================================================================
free           ``tool_choice`` auto, nothing held: what the model writes by itself
constrained    ``tool_choice`` required, every schema enforced; not asked where no call is wanted
=============  ===========================================================================================
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from heptagram_backend.engine_api import Engine
from heptagram_backend.engines import load_engine
from heptagram_backend.errors import HeptagramError, RequestError
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.training import bfcl
from heptagram_backend.training.example import Call
from heptagram_backend.training.judge import are_accepted
from heptagram_backend.training.values import read_data
from heptagram_kernels.layout import K7_LAYOUT
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta

MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "free": {"tool_choice": "auto", "heptagram": {"tool_markup": "free"}},
    "constrained": {"tool_choice": "required", "heptagram": {"unenforced": "validate"}},
}
_PATIENCE_S: Final = 3_600.0
_IN_FLIGHT: Final = 16  # two for each of the usual slots


@dataclass(frozen=True, slots=True)
class Question:
    """``tools_of`` are the names of which one must be called, where no exact answer is known."""

    suite: str
    body: Mapping[str, Any]
    accepted: tuple[tuple[str, bfcl.Accepted], ...] = ()
    tools_of: tuple[str, ...] = ()

    @property
    def wants_call(self) -> bool:
        return bool(self.accepted or self.tools_of)


@dataclass(slots=True)
class Score:
    """Counts of one suite in one mode. ``exact`` is None where no exact answers are known."""

    asked: int = 0
    right_tool: int = 0
    valid: int = 0
    exact: int | None = None


def bfcl_questions(limit: int) -> Iterator[Question]:
    """Up to ``limit`` of each evaluation file, at even distances."""
    for category in bfcl.EVALUATION:
        records = bfcl.records(category)
        count = min(limit, len(records))
        for record in (records[place * len(records) // count] for place in range(count)):
            body = {"messages": list(record.messages), "tools": list(record.tools)}
            yield Question(f"bfcl {category}", body, accepted=record.accepted)


def mcp_questions(folder: Path) -> Iterator[Question]:
    """Questions to the sets in ``folder``: files of OpenAI tools, named as the sets."""
    for name, entries in read_data("mcp.yaml").items():
        tools = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for entry in entries:
            body = {"messages": [{"role": "user", "content": entry["ask"]}], "tools": tools}
            yield Question("mcp", body, tools_of=tuple(entry["tools"]))


def evaluate(
    checkpoint: Path,
    format: str,
    questions: Sequence[Question],
    report: Callable[[str], object],
    *,
    modes: Iterable[str] = tuple(MODES),
    max_tokens: int = 320,
    options: EngineOptions | None = None,
) -> dict[tuple[str, str], Score]:
    """Scores by suite and mode; questions that are too long, or have a schema that is refused, are left out.

    Raises:
        ReleaseError: the checkpoint cannot be served with the format.
    """
    release = Release(
        "model", str(checkpoint), format, k7_layout=K7_LAYOUT.describe(), engine=options or EngineOptions()
    )
    preprocessor, engine = Preprocessor(release, checkpoint), load_engine(release, checkpoint, "1")
    scores: dict[tuple[str, str], Score] = {}
    try:
        for mode in modes:
            asked = [question for question in questions if question.wants_call or mode == "free"]
            for question, answer in _answers(preprocessor, engine, asked, MODES[mode], max_tokens):
                _count(scores.setdefault((question.suite, mode), Score()), question, answer)
                report(
                    f"{mode}: {sum(score.asked for (_, each), score in scores.items() if each == mode)} of {len(asked)}"
                )
    finally:
        engine.close()
    return scores


@dataclass(slots=True)
class Answer:
    """A sink that keeps one answer. ``whole`` are the calls that came to their end."""

    names: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    text: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        for event in events:
            match event:
                case CallStart():
                    self.names[event.index], self.arguments[event.index] = event.name, ""
                case ArgumentsDelta():
                    self.arguments[event.index] += event.text
                case CallEnd():
                    self.ended.add(event.index)
                case TextDelta():
                    self.text += event.text
        if final:
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        self.text = str(error)
        self.done.set()

    @property
    def calls(self) -> list[Call] | None:
        """None where one of them is not whole."""
        if set(self.names) != self.ended:
            return None
        return [Call(name, json.loads(self.arguments[index])) for index, name in self.names.items()]


def _answers(
    preprocessor: Preprocessor, engine: Engine, questions: Sequence[Question], mode: Mapping[str, Any], max_tokens: int
) -> Iterator[tuple[Question, Answer]]:
    running: list[tuple[Question, Answer]] = []
    for question in questions:
        try:
            plan = preprocessor.prepare(json.dumps({**question.body, **mode, "max_tokens": max_tokens}))
        except RequestError:
            continue
        answer = Answer()
        engine.submit(plan, answer)
        running.append((question, answer))
        if len(running) == _IN_FLIGHT:
            yield _ended(running.pop(0))
    for each in running:
        yield _ended(each)


def _ended(each: tuple[Question, Answer]) -> tuple[Question, Answer]:
    if not each[1].done.wait(_PATIENCE_S):
        raise TimeoutError(f"no answer within {_PATIENCE_S:.0f} s")
    return each


def _count(score: Score, question: Question, answer: Answer) -> None:
    calls = answer.calls
    score.asked += 1
    score.valid += calls is not None and bool(calls) is question.wants_call and _are_valid(calls, question)
    if calls is None:
        calls = [Call(name, {}) for name in answer.names.values()]
        exact = False
    else:
        exact = are_accepted(calls, question.accepted)
    if question.tools_of:
        score.right_tool += len(calls) > 0 and calls[0].name in question.tools_of
        return
    score.right_tool += sorted(call.name for call in calls) == sorted(name for name, _ in question.accepted)
    score.exact = (score.exact or 0) + exact


def _are_valid(calls: Sequence[Call], question: Question) -> bool:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in question.body["tools"]}
    return all(
        call.name in schemas and Draft202012Validator(schemas[call.name]).is_valid(dict(call.arguments))
        for call in calls
    )


def table(scores: Mapping[tuple[str, str], Score]) -> str:
    """The scores in Markdown."""
    lines = ["| suite | mode | asked | right tool | exact call | valid |", "|---|---|---:|---:|---:|---:|"]
    for (suite, mode), score in scores.items():
        exact = "" if score.exact is None else f"{score.exact}"
        lines.append(f"| {suite} | {mode} | {score.asked} | {score.right_tool} | {exact} | {score.valid} |")
    return "\n".join(lines)
