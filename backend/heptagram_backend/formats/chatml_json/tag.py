"""What ``tool_choice``, ``strict`` and ``response_format`` ask for, as a structural tag.

============  =============  ==================================================================
tool_choice   strict tools   held
============  =============  ==================================================================
none          any            text without the call marker (or the response format)
required      any            calls only; declared schema where enforced, shape elsewhere
auto          some           text, then calls to the end; schema and shape as above
auto          none           free text; from a marker on the shape of one call (a trigger)
============  =============  ==================================================================

Without ``parallel_tool_calls`` there is one call. With a response format the text is that JSON instead, alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.formats.base import AnswerBounds, Constraints
from heptagram_backend.formats.chatml_json.markup import (
    AFTER_ARGUMENTS,
    BEFORE_ARGUMENTS,
    BEFORE_NAME,
    BETWEEN_CALLS,
    CALL_BEGIN,
    quoted,
)
from heptagram_backend.formats.json_value import Node, json_node, tag_spec
from heptagram_backend.generation import Trigger

_TEXT: Final[Node] = {"type": "any_text", "excludes": [CALL_BEGIN]}
_ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": {}}


def constraints(request: ChatRequest, bounds: AnswerBounds) -> Constraints:
    """Build what holds while the answer is generated."""
    tools = request.callable_tools
    response = None if request.response_format is None else json_node(request.response_format.schema, bounds)
    if not tools or request.tool_choice.mode == "none":
        text = response or (_TEXT if request.tools else None)
        return Constraints(None if text is None else tag_spec(text))
    calls = _calls(tools, bounds, parallel=request.parallel_tool_calls)
    # A finished call is validated against the caller's own schema; what the walker made of it is for the grammar.
    schemas = {tool.name: tool.parameters for tool in tools if tool.enforced is not None}
    if request.tool_choice.mode == "required":
        return Constraints(tag_spec(calls), schemas=schemas)
    if response is not None:
        return Constraints(tag_spec({"type": "or", "elements": [response, calls]}), schemas=schemas)
    if schemas:
        optional: Node = {"type": "optional", "content": calls}
        return Constraints(tag_spec({"type": "sequence", "elements": [_TEXT, optional]}), schemas=schemas)
    return _ordinary(request, tools, bounds)


def _ordinary(request: ChatRequest, tools: Sequence[Tool], bounds: AnswerBounds) -> Constraints:
    if request.tool_markup == "free":
        return Constraints()
    shape = tag_spec(_shape_tag(tools, bounds))
    return Constraints(trigger=Trigger(CALL_BEGIN, shape, once=not request.parallel_tool_calls))


def _calls(tools: Sequence[Tool], bounds: AnswerBounds, *, parallel: bool) -> Node:
    """One or more calls, and nothing else."""
    free = [tool for tool in tools if tool.enforced is None]
    tags = [_call_tag(tool.name, json_node(tool.enforced, bounds)) for tool in tools if tool.enforced is not None]
    return {
        "type": "tags_with_separator",
        "tags": [*tags, _shape_tag(free, bounds)] if free else tags,
        "separator": BETWEEN_CALLS,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }


def _call_tag(name: str, arguments: Node) -> Node:
    begin = f"{BEFORE_NAME}{quoted(name)}{BEFORE_ARGUMENTS}"
    return {"type": "tag", "begin": begin, "content": arguments, "end": AFTER_ARGUMENTS}


def _shape_tag(tools: Sequence[Tool], bounds: AnswerBounds) -> Node:
    """A call of any of ``tools`` with any object as arguments; one object grammar serves them all."""
    names: Node = {"type": "or", "elements": [_const(quoted(tool.name)) for tool in tools]}
    elements = [names, _const(BEFORE_ARGUMENTS), json_node(_ANY_OBJECT, bounds)]
    content: Node = {"type": "sequence", "elements": elements}
    return {"type": "tag", "begin": BEFORE_NAME, "content": content, "end": AFTER_ARGUMENTS}


def _const(text: str) -> Node:
    return {"type": "const_string", "value": text}
