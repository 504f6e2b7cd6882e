"""The calls of one request as nodes of a structural tag. See :class:`heptagram_backend.formats.policy.CallForm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.errors import RequestError
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.markup import CALL_BEGIN
from heptagram_backend.formats.nodes import Node, const, either, sequence, several, tag, tag_spec, text_without
from heptagram_backend.formats.policy import callable_tools, text_then
from heptagram_backend.formats.qwen3.markup import THINK_BEGIN, THINK_END
from heptagram_backend.formats.qwen3_xml.markup import (
    AFTER_NAME,
    AFTER_PARAMETERS,
    BEFORE_NAME,
    BETWEEN_CALLS,
    name_fault,
)
from heptagram_backend.formats.qwen3_xml.parameters import ParameterTags, free_parameters
from heptagram_backend.generation import Trigger
from heptagram_backend.schema.place import Place
from heptagram_wire import errors as codes

_TEXT: Final = text_without(CALL_BEGIN, THINK_BEGIN, THINK_END)


class XmlCalls:
    """Raises ``RequestError`` for what the markup cannot carry."""

    text = _TEXT

    def __init__(self, request: ChatRequest, bounds: AnswerBounds) -> None:
        self._tools = callable_tools(request)
        self._parallel = request.parallel_tool_calls
        self._bounds = bounds
        self._places = {tool.name: f"tools[{index}].function" for index, tool in enumerate(request.tools)}
        for tool in self._tools:
            if fault := name_fault(tool.name):
                raise RequestError(fault, code=codes.INVALID_VALUE, param=f"{self._places[tool.name]}.name")

    def calls(self) -> Node:
        free = [tool for tool in self._tools if tool.enforced is None]
        tags = [self._declared(tool) for tool in self._tools if tool.enforced is not None]
        return several([*tags, self._shape(free)] if free else tags, BETWEEN_CALLS, parallel=self._parallel)

    def text_then_calls(self) -> Node:
        return text_then(self.text, self.calls())

    def trigger(self) -> Trigger:
        return Trigger(CALL_BEGIN, tag_spec(self._shape(self._tools)), once=not self._parallel)

    def _declared(self, tool: Tool) -> Node:
        place = Place(f"{self._places[tool.name]}.parameters")
        content = ParameterTags(tool, self._bounds, place).all()
        return tag(f"{BEFORE_NAME}{tool.name}{AFTER_NAME}", content, AFTER_PARAMETERS)

    def _shape(self, tools: Sequence[Tool]) -> Node:
        """A call of any of ``tools`` with any parameters."""
        names = either([const(tool.name) for tool in tools])
        content = sequence([names, const(AFTER_NAME), free_parameters(self._bounds)])
        return tag(BEFORE_NAME, content, AFTER_PARAMETERS)
