"""The calls of one request as nodes of a structural tag. See :class:`heptagram_backend.formats.policy.CallForm`.

Nothing but its beginning tells a call from text, so text does not begin as a call does, ``{"name"`` with any blanks,
and holds no ``<|python_tag|>``; and an ordinary answer is held from its first token on, for no trigger is a sure one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from heptagram_backend.caller_grammar import class_of
from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.ebnf import literal, write
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.markup import quoted
from heptagram_backend.formats.json_call import BLANK
from heptagram_backend.formats.json_value import ANY_OBJECT, json_node
from heptagram_backend.formats.llama3_json.markup import (
    AFTER_ARGUMENTS,
    BEFORE_ARGUMENTS,
    BEFORE_NAME,
    BETWEEN_CALLS,
    PYTHON_TAG,
)
from heptagram_backend.formats.nodes import Node, const, either, optional, sequence, several, shared, tag
from heptagram_backend.formats.policy import callable_tools
from heptagram_backend.raw_text import plain_characters, text_without_tag
from heptagram_backend.schema.charset import complement, intersection, of

_OPENING: Final = '{"name"'


class JsonCalls:
    def __init__(self, request: ChatRequest, bounds: AnswerBounds) -> None:
        self.text: Node = {"type": "ebnf", "grammar": _text()}
        self._tools = callable_tools(request)
        self._parallel = request.parallel_tool_calls
        self._bounds = bounds

    def calls(self) -> Node:
        return sequence([optional(const(PYTHON_TAG)), self._several()])

    def text_then_calls(self) -> Node:
        tagged = sequence([const(PYTHON_TAG), self._several()])
        return either([self._several(), sequence([self.text, optional(tagged)])])

    def trigger(self) -> None:
        return None

    def _several(self) -> Node:
        free = [tool for tool in self._tools if tool.enforced is None]
        tags = [self._declared(tool) for tool in self._tools if tool.enforced is not None]
        return shared(several([*tags, self._shape(free)] if free else tags, BETWEEN_CALLS, parallel=self._parallel))

    def _declared(self, tool: Tool) -> Node:
        assert tool.enforced is not None
        begin = f"{BEFORE_NAME}{quoted(tool.name)}{BEFORE_ARGUMENTS}"
        return tag(begin, json_node(tool.enforced, self._bounds), AFTER_ARGUMENTS)

    def _shape(self, tools: Sequence[Tool]) -> Node:
        """A call of any of ``tools`` with any object as arguments; one object grammar serves them all."""
        names = either([const(quoted(tool.name)) for tool in tools])
        content = sequence([names, const(BEFORE_ARGUMENTS), json_node(ANY_OBJECT, self._bounds)])
        return tag(BEFORE_NAME, content, AFTER_ARGUMENTS)


@cache
def _text() -> str:
    """The grammar of text in which no call begins: before each character of a call's opening it ends, or goes another
    way, or goes on with it but for the last one. Blanks may stand before the first two."""
    _, rest = text_without_tag(PYTHON_TAG, "rest")
    rules = {"root": "at_0", **rest}
    for place, char in enumerate(_OPENING):
        blank = BLANK if place < 2 else ""
        others = class_of(intersection(plain_characters(PYTHON_TAG), complement(of(char + blank))))
        further = f" | {literal(char)} at_{place + 1}" if place + 1 < len(_OPENING) else ""
        again = f" | {class_of(of(blank))} at_{place}" if blank else ""
        rules[f"at_{place}"] = f'("" | {others} rest | {literal(PYTHON_TAG[0])} rest_1{further}{again})'
    return write(rules)
