"""Hermes-style tool use over any ChatML template: ``<tool_call>``, a JSON object, ``</tool_call>``.

Used for SmolLM2 and for every checkpoint whose template knows only roles and contents.
"""

from __future__ import annotations

from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.formats.base import PLAIN, AnswerBounds, ChatTokenizer, Constraints, OutputParser, PromptEncoding
from heptagram_backend.formats.chatml_json.encode import RenderedMessage, render_messages
from heptagram_backend.formats.hermes.markup import Guard
from heptagram_backend.formats.hermes.parse import CallParser, PlainParser
from heptagram_backend.formats.hermes.tag import HermesCalls
from heptagram_backend.formats.policy import constraints
from heptagram_backend.generation import OutputSpec

__all__ = ["ChatMLJson"]


class ChatMLJson:
    """See :class:`heptagram_backend.formats.base.Format`. Stateless; one serves all requests."""

    name = "chatml_json"
    markers = None
    conventions = Conventions()

    def __init__(self, bounds: AnswerBounds | None = None) -> None:
        self._bounds = bounds or AnswerBounds()

    def check(self, tokenizer: ChatTokenizer) -> None:  # the template is found missing where it is used
        del tokenizer

    def encode(self, request: ChatRequest, tokenizer: ChatTokenizer) -> PromptEncoding:
        messages = self.rendered_messages(request, tokenizer.guarded)
        text = tokenizer.render(messages, **request.chat_template_kwargs)
        return PromptEncoding(tuple(tokenizer.encode(text)))

    def rendered_messages(self, request: ChatRequest, guarded: Guard = str) -> list[RenderedMessage]:
        """The role and content of each message as the checkpoint's template gets them."""
        return render_messages(request, guarded)

    def constrain(self, request: ChatRequest, prompt: PromptEncoding = PLAIN) -> Constraints:
        del prompt  # no reasoning
        return constraints(request, HermesCalls(request, self._bounds), self._bounds)

    def parser(self, output: OutputSpec) -> OutputParser:
        return CallParser(output.markup) if output.parse_calls else PlainParser()
