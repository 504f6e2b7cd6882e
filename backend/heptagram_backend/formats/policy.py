"""What ``tool_choice``, ``strict`` and ``response_format`` ask for: the table that all formats share.

============  =============  ==================================================================
tool_choice   strict tools   held, behind the reasoning where there is some
============  =============  ==================================================================
none          any            text without a call (or the response format)
required      any            calls only; declared schema where enforced, shape elsewhere
auto          some           text, then calls to the end; schema and shape as above
auto          none           free text; from a marker on the shape of calls (a trigger)
============  =============  ==================================================================

Without ``parallel_tool_calls`` there is one call. With a response format the text is that JSON instead, alone. A format
whose calls have no marker of their own holds the last row as the one above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.formats.base import AnswerBounds, Constraints
from heptagram_backend.formats.json_value import json_node
from heptagram_backend.formats.nodes import Node, optional, sequence, tag_spec
from heptagram_backend.formats.reasoning import NO_REASONING, ReasoningTag
from heptagram_backend.generation import Trigger


class CallForm(Protocol):
    """How one request's calls are written."""

    @property
    def text(self) -> Node:
        """Text in which no call begins."""

    def calls(self) -> Node:
        """One call or more as the whole answer; what parts them from the reasoning is not theirs."""

    def text_then_calls(self) -> Node:
        """Text, calls, or both."""

    def trigger(self) -> Trigger | None:
        """What opens a call in free text; ``None`` where nothing does surely."""


def callable_tools(request: ChatRequest) -> Sequence[Tool]:
    """The tools that the answer may call."""
    return () if request.tool_choice.mode == "none" else request.callable_tools


def constraints(
    request: ChatRequest, form: CallForm, bounds: AnswerBounds, reasoning: ReasoningTag = NO_REASONING
) -> Constraints:
    """Build what holds while the answer is generated."""
    tools = callable_tools(request)
    # A finished call is validated against the caller's own schema; what the walker made of it is for the grammar.
    schemas = {tool.name: tool.parameters for tool in tools if tool.enforced is not None}
    response = None if request.response_format is None else json_node(request.response_format.schema, bounds)
    if tools and request.tool_choice.mode == "required":
        return _held(reasoning.before(form.calls()), schemas)
    if response is not None:
        both: Node = {"type": "or", "elements": [response, form.calls()]} if tools else response
        return _held(reasoning.before(both), schemas)
    if not tools:
        return _held(reasoning.before_text(form.text), {}) if request.tools else Constraints()
    if schemas:
        return _held(reasoning.before_text(form.text_then_calls()), schemas)
    if request.tool_markup == "free":
        return Constraints()
    trigger = form.trigger()
    if trigger is None:
        return _held(reasoning.before_text(form.text_then_calls()), {})
    return Constraints(trigger=reasoning.armed(trigger))


def text_then(text: Node, calls: Node) -> Node:
    return sequence([text, optional(calls)])


def _held(node: Node, schemas: Mapping[str, Any]) -> Constraints:
    return Constraints(tag_spec(node), schemas=schemas)
