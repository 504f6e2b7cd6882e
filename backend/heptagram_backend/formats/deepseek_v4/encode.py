"""A conversation as the text that DeepSeek's own encoders make of it, character for character.

Deliberate differences, all where theirs fail or lose something: a conversation that ends with no open answer (an
assistant's turn, or a system message in V4) gets the header of one; text of the caller cannot forge a control token or
a result; null contents and null fields of a tool are absent instead of the word ``None`` or ``null``; arguments of past
calls that the markup cannot carry are kept as text. Their tokens for quick classification tasks are not offered.

V4 drops developer messages before the last question together with the reasoning, and so do we: put what must stay into
a system message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from heptagram_backend.conversation import ChatRequest, PastCall
from heptagram_backend.formats.deepseek_v4.markup import (
    ASSISTANT,
    BOS,
    EOS,
    REMINDER,
    THINK_BEGIN,
    THINK_END,
    USER,
    Dsml,
)
from heptagram_backend.formats.deepseek_v4.mode import Mode
from heptagram_backend.formats.deepseek_v4.turns import BETWEEN_PARTS, Guard, Turn, merged_turns, read_arguments

_BEGINNINGS: Final = {"user": USER, "developer": USER, "latest_reminder": REMINDER}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one version differs.

    Args:
        dsml: its tags.
        effort_text: the line about the reasoning effort that opens a prompt in thinking mode; may be empty.
        system: the control token of system messages. With one, a system message behind the first turn is answered
            like a user's, and ``developer`` is another name of ``system``; without, ``developer`` speaks as a user.
        results_ask: a turn of nothing but results counts as a question: reasoning before it may be dropped.
    """

    dsml: Dsml
    effort_text: Callable[[str | int | None], str]
    system: str = ""
    results_ask: bool = True


def render(request: ChatRequest, mode: Mode, dialect: Dialect, guarded: Guard) -> str:
    """The prompt as text; ``guarded`` is applied to everything that the caller wrote.

    The header of the answer comes last, or just before a reminder that comes last.
    """
    turns = _turns(request, dialect, guarded)
    forgets = mode.thinking and mode.drop_thinking and not request.tools
    if forgets:
        turns = _forgotten(turns, dialect)
    last = _last_question(turns, dialect)
    text = [BOS]
    answering = False
    for index, turn in enumerate(turns):
        text.append(_beginning(index, turn, mode, dialect))
        text.append(turn.text)
        if turn.role == "assistant":
            thought = mode.thinking and (not forgets or index > last)
            text[-1] = _assistant(turn, dialect.dsml, guarded, reasoning=thought)
        answering = answering and turn.role == "latest_reminder"
        if _asks(index, turn, dialect) and _is_answered(index, turns):
            text.append(_header(thinking=mode.thinking and (not forgets or index >= last)))
            answering = True
    if not answering:
        text.append(_header(thinking=mode.thinking))
    return "".join(text)


def _turns(request: ChatRequest, dialect: Dialect, guarded: Guard) -> list[Turn]:
    """The turns, the first one with what the request declares; a system message is added for that if need be."""
    turns = list(merged_turns(request.messages, guarded))
    if dialect.system:
        turns = [replace(turn, role="system") if turn.role == "developer" else turn for turn in turns]
    notes = list(_notes(request, dialect.dsml, guarded))
    if notes:
        if not turns or turns[0].role != "system":
            turns.insert(0, Turn("system", ""))
        turns[0] = replace(turns[0], text=BETWEEN_PARTS.join([turns[0].text, *notes]))
    return turns


def _notes(request: ChatRequest, dsml: Dsml, guarded: Guard) -> Iterator[str]:
    if request.tools:
        declared = "\n".join(_json(tool.declaration) for tool in request.tools)
        yield tools_text(dsml, guarded(declared))
    if request.response_format is not None:
        schema = guarded(_json(request.response_format.declared))
        yield f"## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{schema}"


def _forgotten(turns: Sequence[Turn], dialect: Dialect) -> list[Turn]:
    """Without what developers said before the last question."""
    last = _last_question(turns, dialect)
    return [turn for index, turn in enumerate(turns) if index >= last or turn.role != "developer"]


def _last_question(turns: Sequence[Turn], dialect: Dialect) -> int:
    """Its index, or -1."""
    asking = (
        index
        for index, turn in enumerate(turns)
        if _asks(index, turn, dialect) and (turn.speaks or dialect.results_ask)
    )
    return max(asking, default=-1)


def _asks(index: int, turn: Turn, dialect: Dialect) -> bool:
    """Whether an answer may follow the turn."""
    return turn.role in ("user", "developer") or (turn.role == "system" and index > 0 and bool(dialect.system))


def _is_answered(index: int, turns: Sequence[Turn]) -> bool:
    return index + 1 == len(turns) or turns[index + 1].role in ("assistant", "latest_reminder")


def _header(*, thinking: bool) -> str:
    return ASSISTANT + (THINK_BEGIN if thinking else THINK_END)


def _beginning(index: int, turn: Turn, mode: Mode, dialect: Dialect) -> str:
    effort = dialect.effort_text(mode.effort) if index == 0 and mode.thinking else ""
    leads = dialect.system if effort or turn.role == "system" else ""
    return leads + effort + _BEGINNINGS.get(turn.role, "")


def _assistant(turn: Turn, dsml: Dsml, guarded: Guard, *, reasoning: bool) -> str:
    thought = turn.reasoning + THINK_END if reasoning else ""
    return f"{thought}{turn.text}{calls_text(turn.calls, dsml, guarded)}{EOS}"


def calls_text(calls: Sequence[PastCall], dsml: Dsml, guarded: Guard) -> str:
    """The block of the calls of one turn, with the blank line before it; empty where there is none."""
    return dsml.block_text(_call(call, dsml, guarded) for call in calls) if calls else ""


def _call(call: PastCall, dsml: Dsml, guarded: Guard) -> str:
    parameters = (
        dsml.parameter_text(
            guarded(name),
            guarded(value if isinstance(value, str) else _json(value)),
            string=isinstance(value, str),
        )
        for name, value in read_arguments(call.arguments).items()
    )
    return dsml.invoke_text(guarded(call.name), parameters)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def tools_text(dsml: Dsml, declared: str) -> str:
    """The part of a prompt that declares tools; ``declared`` has one function as JSON a line."""
    parameter = dsml.parameter_text("$PARAMETER_NAME", "$PARAMETER_VALUE", string=True)
    example = f"""\
{dsml.block_begin}
{dsml.invoke_text("$TOOL_NAME", [parameter.replace('"true"', '"true|false"'), "..."])}
{dsml.invoke_text("$TOOL_NAME2", ["..."])}
{dsml.block_end}"""
    return f"""\
## Tools

You have access to a set of tools to help answer the user's question. \
You can invoke tools by writing a "{dsml.block_begin}" block like the following:

{example}

String parameters should be specified as is and set `string="true"`. \
For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK_BEGIN}), you MUST output your complete reasoning inside \
{THINK_BEGIN}...{THINK_END} BEFORE any tool calls or final response.

Otherwise, output directly after {THINK_END} with tool calls or final response.

### Available Tool Schemas

{declared}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
