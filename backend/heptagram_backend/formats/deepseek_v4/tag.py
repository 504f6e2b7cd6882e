"""DSML calls as nodes of a structural tag: one block behind the text, held as ``formats/policy.py`` says.

The answer ends behind the block. Reasoning is part of the grammar from the first token on: it ends by ``</think>`` once
and holds no marker, so no call begins inside it. Of an ordinary answer the reasoning is free, and the trigger is armed
behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.errors import RequestError
from heptagram_backend.formats import policy
from heptagram_backend.formats.base import AnswerBounds, Constraints
from heptagram_backend.formats.deepseek_v4.markup import (
    AFTER_NAME,
    BEFORE_BLOCK,
    DSML,
    SEPARATOR,
    THINK_BEGIN,
    THINK_END,
    Dsml,
    name_fault,
)
from heptagram_backend.formats.deepseek_v4.parameters import ParameterTags
from heptagram_backend.formats.nodes import Node, const, either, sequence, several, tag, tag_spec, text_without
from heptagram_backend.formats.reasoning import ReasoningTag
from heptagram_backend.generation import Trigger
from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes

_TRIGGER: Final = f"<{DSML}"


def constraints(request: ChatRequest, dsml: Dsml, *, thinking: bool, bounds: AnswerBounds) -> Constraints:
    """Build what holds while the answer is generated; with ``thinking`` it begins inside the reasoning.

    Raises:
        RequestError: a tool or a parameter cannot be written in the markup.
    """
    reasoning = ReasoningTag("always" if thinking else "never", THINK_BEGIN, THINK_END, (DSML,))
    return policy.constraints(request, _DsmlCalls(request, dsml, bounds), bounds, reasoning)


class _DsmlCalls:
    """See :class:`heptagram_backend.formats.policy.CallForm`."""

    text = text_without(THINK_BEGIN, THINK_END, DSML)

    def __init__(self, request: ChatRequest, dsml: Dsml, bounds: AnswerBounds) -> None:
        self._tools = policy.callable_tools(request)
        self._parallel = request.parallel_tool_calls
        self._dsml = dsml
        self._parameters = ParameterTags(dsml, bounds)
        self._unenforced = request.unenforced
        self._places = {tool.name: f"tools[{index}].function" for index, tool in enumerate(request.tools)}
        for tool in self._tools:
            if fault := name_fault(tool.name):
                raise RequestError(fault, code=codes.INVALID_VALUE, param=f"{self._places[tool.name]}.name")

    def calls(self) -> Node:
        return self._block()

    def text_then_calls(self) -> Node:
        return policy.text_then(self.text, self._block())

    def trigger(self) -> Trigger:
        return Trigger(_TRIGGER, tag_spec(self._block(BEFORE_BLOCK)), once=True)

    def _block(self, without: str = "") -> Node:
        """A block of calls; what of its beginning is already there is left out."""
        begin = f"{BEFORE_BLOCK}{self._dsml.block_begin}{SEPARATOR}".removeprefix(without)
        free = [tool for tool in self._tools if tool.enforced is None]
        calls = [self._declared(tool) for tool in self._tools if tool.enforced is not None]
        inside = several([*calls, self._free(free)] if free else calls, "", parallel=self._parallel)
        return tag(begin, inside, self._dsml.block_end)

    def _declared(self, tool: Tool) -> Node:
        place = Place(f"{self._places[tool.name]}.parameters", unenforced=self._unenforced)
        begin = f"{self._dsml.invoke_begin}{tool.name}{AFTER_NAME}"
        return self._call(begin, self._parameters.declared(tool, place))

    def _free(self, tools: Sequence[Tool]) -> Node:
        """A call of any of ``tools`` with any parameters."""
        names = either([const(tool.name) for tool in tools])
        return self._call(self._dsml.invoke_begin, sequence([names, const(AFTER_NAME), self._parameters.free()]))

    def _call(self, begin: str, content: Node) -> Node:
        return tag(begin, content, self._dsml.invoke_end + SEPARATOR)
