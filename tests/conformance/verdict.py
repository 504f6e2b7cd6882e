"""Judges answers by the schemas that the caller declared, with a JSON Schema library, and counts them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonschema.validators import validator_for

from heptagram_client.errors import HeptagramClientError
from heptagram_client.fold import ChatMessage, ToolCall, fold
from heptagram_wire.events import Event
from tests.conformance.cases import Case


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tool that is not served strictly: its 400, which names the place."""

    case: Case
    tool: str
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    case: Case
    message: ChatMessage | None
    violations: tuple[str, ...]


def judge(case: Case, events: Sequence[Event]) -> Answer:
    """Check one answer of a request that demanded a call."""
    try:
        message = fold(events)
    except HeptagramClientError as error:
        return Answer(case, None, (f"{case.id} ({case.mode}): {error!r}",))
    faults = [f"{case.id} ({case.mode}): {fault}" for fault in _faults(case, message)]
    return Answer(case, message, tuple(faults))


def _faults(case: Case, message: ChatMessage) -> Iterator[str]:
    calls = message.tool_calls
    if message.finish_reason not in ("tool_calls", "length"):
        yield f"finished with {message.finish_reason}"
    if message.content and message.finish_reason != "length":
        yield f"text beside the calls: {message.content!r}"
    if any(not call.complete for call in calls[:-1]):
        yield "a call was left open before the last one"
    if not case.parallel and len(calls) > 1:
        yield f"{len(calls)} calls"
    for call in calls:
        if call.name not in case.declared:
            yield f"{call.name!r} is not declared"
        elif case.choice not in (None, call.name):
            yield f"{call.name!r} instead of the named tool"
        elif call.complete:
            yield from _invalid(call, case.declared[call.name])


def _invalid(call: ToolCall, schema: Any) -> Iterator[str]:
    try:
        value = json.loads(call.arguments, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except ValueError as error:
        yield f"{call.name}: {call.arguments!r} is not JSON: {error}"
        return
    kind = validator_for(schema)
    kind.check_schema(schema)
    assert formats_of(schema) <= set(kind.FORMAT_CHECKER.checkers), "a format that nobody checks"
    for fault in kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value):
        yield f"{call.name}: {call.arguments!r} at {fault.json_path}: {fault.message}"


def formats_of(schema: Any) -> set[str]:
    """Every format that a schema asserts."""
    if isinstance(schema, list):
        return set().union(*map(formats_of, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["format"]} if isinstance(schema.get("format"), str) else set()
    return own.union(*(formats_of(child) for child in schema.values()))


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


@dataclass(slots=True)
class Tally:
    """Answers and refusals of one run."""

    answers: list[Answer] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unasked: int = 0  # cases of which nothing was left when the refused tools were taken out

    @property
    def violations(self) -> list[str]:
        return [violation for answer in self.answers for violation in answer.violations]

    @property
    def calls(self) -> list[ToolCall]:
        return [call for answer in self.answers if answer.message for call in answer.message.tool_calls]

    @property
    def finished(self) -> list[ToolCall]:
        return [call for call in self.calls if call.complete]

    @property
    def finished_share(self) -> float:
        return len(self.finished) / len(self.calls)

    @property
    def refused(self) -> dict[str, str]:
        """Refused tools, and what the 400 said."""
        return {f"{refusal.case.source} {refusal.tool}": refusal.message for refusal in self.refusals}

    def table(self, title: str) -> str:
        lines = [f"{title:34}{'requests':>9}{'ended':>7}{'length':>8}{'calls':>7}{'cut':>5}{'bad':>5}"]
        for names in (sorted({a.case.source for a in self.answers}), sorted({a.case.mode for a in self.answers})):
            lines += [
                self._row(name, [a for a in self.answers if name in (a.case.source, a.case.mode)]) for name in names
            ]
        lines.append(self._row("all", self.answers))
        lines.append(f"not asked, every tool refused: {self.unasked}")
        lines += [f"refused: {tool}: {message}" for tool, message in self.refused.items()]
        return "\n".join(lines)

    @staticmethod
    def _row(name: str, answers: Sequence[Answer]) -> str:
        reasons = Counter(answer.message.finish_reason for answer in answers if answer.message)
        calls = Counter(call.complete for answer in answers if answer.message for call in answer.message.tool_calls)
        bad = sum(bool(answer.violations) for answer in answers)
        counts = f"{len(answers):9}{reasons['tool_calls']:7}{reasons['length']:8}{calls[True]:7}{calls[False]:5}{bad:5}"
        return f"{name:34}{counts}"
