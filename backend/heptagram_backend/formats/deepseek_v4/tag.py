"""What ``tool_choice``, ``strict`` and ``response_format`` ask for, as a structural tag.

============  =============  ==============================================================================
tool_choice   strict tools   held, behind the reasoning where the model thinks
============  =============  ==============================================================================
none          any            text without the marker (or the response format)
required      any            one block of calls; declared schema where enforced, shape elsewhere
auto          some           text, then at most one block; schema and shape as above
auto          none           free text; from the first tag on the shape of one block (a trigger)
============  =============  ==============================================================================

The answer ends behind the block. Without ``parallel_tool_calls`` the block has one call. With a response format the
text is that JSON instead, alone. Reasoning is part of the grammar from the first token on: it ends by ``</think>`` once
and holds no marker, so no call begins inside it. Of an ordinary answer the reasoning is free, and the trigger is armed
behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.errors import RequestError
from heptagram_backend.formats.base import AnswerBounds, Constraints
from heptagram_backend.formats.deepseek_v4.markup import (
    AFTER_NAME,
    BEFORE_BLOCK,
    DSML,
    SEPARATOR,
    THINK_BEGIN,
    THINK_END,
    Dsml,
)
from heptagram_backend.formats.deepseek_v4.parameters import ParameterTags, const, either, name_fault, sequence
from heptagram_backend.formats.json_value import Node, json_node, tag_spec
from heptagram_backend.generation import Trigger
from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes

_TEXT: Final[Node] = {"type": "any_text", "excludes": [THINK_BEGIN, THINK_END, DSML]}
_REASONING: Final[Node] = {
    "type": "tag",
    "begin": "",
    "content": {"type": "any_text", "excludes": [THINK_BEGIN, DSML]},
    "end": THINK_END,
}
_TRIGGER: Final = f"<{DSML}"


def constraints(request: ChatRequest, dsml: Dsml, *, thinking: bool, bounds: AnswerBounds) -> Constraints:
    """Build what holds while the answer is generated; with ``thinking`` it begins inside the reasoning.

    Raises:
        RequestError: a tool or a parameter cannot be written in the markup.
    """
    tags = _Tags(request, dsml, bounds)
    answer = tags.answer()
    if answer is not None:
        whole = sequence([_REASONING, answer]) if thinking else answer
        schemas = {tool.name: tool.parameters for tool in tags.tools if tool.enforced is not None}
        return Constraints(tag_spec(whole), schemas=schemas)
    if not tags.tools or request.tool_markup == "free":
        return Constraints()
    shape = tag_spec(tags.block(BEFORE_BLOCK))
    return Constraints(trigger=Trigger(_TRIGGER, shape, once=True, after=THINK_END if thinking else ""))


class _Tags:
    """The tags of one request. ``tools`` are those that may be called."""

    def __init__(self, request: ChatRequest, dsml: Dsml, bounds: AnswerBounds) -> None:
        self.tools = () if request.tool_choice.mode == "none" else request.callable_tools
        self._request = request
        self._dsml = dsml
        self._bounds = bounds
        self._parameters = ParameterTags(dsml, bounds)
        self._places = {tool.name: f"tools[{index}].function" for index, tool in enumerate(request.tools)}
        for tool in self.tools:
            if fault := name_fault(tool.name):
                raise RequestError(fault, code=codes.INVALID_VALUE, param=f"{self._places[tool.name]}.name")

    def answer(self) -> Node | None:
        """What the answer is held to behind the reasoning; ``None`` where it is ordinary."""
        request = self._request
        response = None if request.response_format is None else json_node(request.response_format.schema, self._bounds)
        if not self.tools:
            return response or (_TEXT if request.tools else None)
        if request.tool_choice.mode == "required":
            return self.block()
        if response is not None:
            return either([response, self.block()])
        if any(tool.enforced is not None for tool in self.tools):
            return sequence([_TEXT, {"type": "optional", "content": self.block()}])
        return None

    def block(self, without: str = "") -> Node:
        """A block of calls; what of its beginning is already there is left out."""
        begin = f"{BEFORE_BLOCK}{self._dsml.block_begin}{SEPARATOR}".removeprefix(without)
        free = [tool for tool in self.tools if tool.enforced is None]
        calls = [self._declared_call(tool) for tool in self.tools if tool.enforced is not None]
        several: Node = {
            "type": "tags_with_separator",
            "tags": [*calls, self._free_call(free)] if free else calls,
            "separator": "",
            "at_least_one": True,
            "stop_after_first": not self._request.parallel_tool_calls,
        }
        return {"type": "tag", "begin": begin, "content": several, "end": self._dsml.block_end}

    def _declared_call(self, tool: Tool) -> Node:
        place = Place(f"{self._places[tool.name]}.parameters")
        begin = f"{self._dsml.invoke_begin}{tool.name}{AFTER_NAME}"
        return self._call(begin, self._parameters.declared(tool, place))

    def _free_call(self, tools: Sequence[Tool]) -> Node:
        """A call of any of ``tools`` with any parameters."""
        names = either([const(tool.name) for tool in tools])
        return self._call(self._dsml.invoke_begin, sequence([names, const(AFTER_NAME), self._parameters.free()]))

    def _call(self, begin: str, content: Node) -> Node:
        return {"type": "tag", "begin": begin, "content": content, "end": self._dsml.invoke_end + SEPARATOR}
