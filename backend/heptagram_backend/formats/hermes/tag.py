"""Hermes-style calls as nodes of a structural tag. See :class:`heptagram_backend.formats.policy.CallForm`."""

from __future__ import annotations

from collections.abc import Sequence

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.markup import (
    AFTER_ARGUMENTS,
    BEFORE_ARGUMENTS,
    BEFORE_NAME,
    BETWEEN_CALLS,
    CALL_BEGIN,
    quoted,
)
from heptagram_backend.formats.json_value import ANY_OBJECT, json_node
from heptagram_backend.formats.nodes import Node, const, either, sequence, several, tag, tag_spec, text_without
from heptagram_backend.formats.policy import callable_tools, text_then
from heptagram_backend.generation import Trigger


class HermesCalls:
    """The calls of one request; ``others`` are further markers that its text does not hold."""

    def __init__(self, request: ChatRequest, bounds: AnswerBounds, others: Sequence[str] = ()) -> None:
        self.text = text_without(CALL_BEGIN, *others)
        self._tools = callable_tools(request)
        self._parallel = request.parallel_tool_calls
        self._bounds = bounds

    def calls(self) -> Node:
        free = [tool for tool in self._tools if tool.enforced is None]
        tags = [self._declared(tool) for tool in self._tools if tool.enforced is not None]
        return several([*tags, self._shape(free)] if free else tags, BETWEEN_CALLS, parallel=self._parallel)

    def text_then_calls(self) -> Node:
        return text_then(self.text, self.calls())

    def trigger(self) -> Trigger:
        return Trigger(CALL_BEGIN, tag_spec(self._shape(self._tools)), once=not self._parallel)

    def _declared(self, tool: Tool) -> Node:
        assert tool.enforced is not None
        begin = f"{BEFORE_NAME}{quoted(tool.name)}{BEFORE_ARGUMENTS}"
        return tag(begin, json_node(tool.enforced, self._bounds), AFTER_ARGUMENTS)

    def _shape(self, tools: Sequence[Tool]) -> Node:
        """A call of any of ``tools`` with any object as arguments; one object grammar serves them all."""
        names = either([const(quoted(tool.name)) for tool in tools])
        content = sequence([names, const(BEFORE_ARGUMENTS), json_node(ANY_OBJECT, self._bounds)])
        return tag(BEFORE_NAME, content, AFTER_ARGUMENTS)
