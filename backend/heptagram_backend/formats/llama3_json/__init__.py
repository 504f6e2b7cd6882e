"""Llama 3.1, 3.2 and 3.3: JSON calls, results from the role ``ipython``.

The checkpoint's own template renders the prompt. ``<|python_tag|>`` is read as the beginning of calls; code for a
Python interpreter, which Llama 3.1 writes behind it for its built-in tools, is not offered.
"""

from __future__ import annotations

from typing import ClassVar

from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import (
    PLAIN,
    AnswerBounds,
    ChatTokenizer,
    Constraints,
    OutputParser,
    PromptEncoding,
)
from heptagram_backend.formats.hermes.parse import PlainParser
from heptagram_backend.formats.llama3_json.encode import template_messages
from heptagram_backend.formats.llama3_json.markup import CONTROL_TOKENS, PYTHON_TAG
from heptagram_backend.formats.llama3_json.parse import LlamaParser
from heptagram_backend.formats.llama3_json.tag import JsonCalls
from heptagram_backend.formats.policy import callable_tools, constraints
from heptagram_backend.formats.template import Guard, TemplateMessage, declared_tools
from heptagram_backend.generation import OutputSpec

__all__ = ["Llama3Json"]


class Llama3Json:
    """See :class:`heptagram_backend.formats.base.Format`. Stateless; one serves all requests."""

    name = "llama3_json"
    markers: ClassVar[frozenset[str] | None] = frozenset((PYTHON_TAG,))
    conventions = Conventions()

    def __init__(self, bounds: AnswerBounds | None = None) -> None:
        self._bounds = bounds or AnswerBounds()

    def check(self, tokenizer: ChatTokenizer) -> None:
        missing = [token for token in CONTROL_TOKENS if tokenizer.token_id(token) is None]
        if missing:
            raise ReleaseError(
                f"format: {self.name} needs {' and '.join(missing)}, but the checkpoint's tokenizer has no such "
                "control token; point `checkpoint` at a model of Llama 3.1 to 3.3, or choose another `format`"
            )

    def encode(self, request: ChatRequest, tokenizer: ChatTokenizer) -> PromptEncoding:
        guarded = tokenizer.guarded
        tools = declared_tools(request, guarded)
        text = tokenizer.render(self.messages(request, guarded), tools=tools, **request.chat_template_kwargs)
        return PromptEncoding(tuple(tokenizer.encode(text)))

    def messages(self, request: ChatRequest, guarded: Guard = str) -> list[TemplateMessage]:
        """The messages as the checkpoint's template gets them."""
        return list(template_messages(request, guarded))

    def constrain(self, request: ChatRequest, prompt: PromptEncoding = PLAIN) -> Constraints:
        del prompt  # no reasoning
        held = constraints(request, JsonCalls(request, self._bounds), self._bounds)
        names: dict[str, dict[str, str]] = {tool.name: {} for tool in callable_tools(request)}
        return Constraints(held.constraint, held.trigger, held.schemas, names)

    def parser(self, output: OutputSpec) -> OutputParser:
        return LlamaParser(output.tools or None, output.markup) if output.parse_calls else PlainParser()
