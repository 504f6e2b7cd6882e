"""DeepSeek V4's calls over any ChatML template: the roles are the checkpoint's, the calls are DSML.

For small models that were taught the markup (``heptagram train-adapter``): the grammar, the parser and the text of
calls and results are those of ``deepseek_v4``. Its control tokens of roles are not needed, so a model goes on chatting
as it was trained to. ``｜DSML｜`` may be one token of the tokenizer, which halves the tokens of a call, or plain text.
"""

from __future__ import annotations

from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.formats.base import PLAIN, AnswerBounds, ChatTokenizer, Constraints, OutputParser, PromptEncoding
from heptagram_backend.formats.chatml_dsml.encode import RenderedMessage, render_messages
from heptagram_backend.formats.deepseek_v4.markup import V4
from heptagram_backend.formats.deepseek_v4.parse import DsmlParser
from heptagram_backend.formats.deepseek_v4.tag import constraints
from heptagram_backend.formats.deepseek_v4.turns import Guard
from heptagram_backend.generation import OutputSpec

__all__ = ["ChatMLDsml"]


class ChatMLDsml:
    """See :class:`heptagram_backend.formats.base.Format`. Stateless; one serves all requests."""

    name = "chatml_dsml"
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
        return constraints(request, V4, thinking=False, bounds=self._bounds)

    def parser(self, output: OutputSpec) -> OutputParser:
        return DsmlParser(V4, parse_calls=output.parse_calls, starts_in_reasoning=False, markup=output.markup)
