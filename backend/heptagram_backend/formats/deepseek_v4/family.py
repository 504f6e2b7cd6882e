"""What the formats of DeepSeek V4 and V4.1 have in common."""

from __future__ import annotations

from typing import ClassVar, Final

from heptagram_backend.conversation import ChatRequest, Conventions, Role
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import PLAIN, AnswerBounds, ChatTokenizer, Constraints, OutputParser, PromptEncoding
from heptagram_backend.formats.deepseek_v4.encode import Dialect, render
from heptagram_backend.formats.deepseek_v4.markup import (
    ASSISTANT,
    BOS,
    DSML,
    EOS,
    REMINDER,
    THINK_BEGIN,
    THINK_END,
    USER,
)
from heptagram_backend.formats.deepseek_v4.mode import read_mode
from heptagram_backend.formats.deepseek_v4.parse import DsmlParser
from heptagram_backend.formats.deepseek_v4.tag import constraints
from heptagram_backend.generation import OutputSpec

ROLES: Final[tuple[Role, ...]] = ("system", "developer", "user", "assistant", "tool", "latest_reminder")
_CONTROL_TOKENS: Final = (BOS, EOS, USER, ASSISTANT, REMINDER, THINK_BEGIN, THINK_END, DSML)


class DsmlFormat:
    """See :class:`heptagram_backend.formats.base.Format`. Stateless; one serves all requests."""

    name: ClassVar[str]
    conventions: ClassVar[Conventions]
    dialect: ClassVar[Dialect]
    extra_tokens: ClassVar[tuple[str, ...]] = ()
    markers: ClassVar[frozenset[str] | None] = frozenset((THINK_BEGIN, THINK_END, DSML))

    def __init__(self, bounds: AnswerBounds | None = None) -> None:
        self._bounds = bounds or AnswerBounds()

    def check(self, tokenizer: ChatTokenizer) -> None:
        needed = (*_CONTROL_TOKENS, *self.extra_tokens)
        missing = [token for token in needed if tokenizer.token_id(token) is None]
        if missing:
            raise ReleaseError(
                f"format: {self.name} needs {' and '.join(missing)}, but the checkpoint's tokenizer has no such "
                "control token; point `checkpoint` at a folder with the tokenizer of that model, or choose another "
                "`format`"
            )

    def encode(self, request: ChatRequest, tokenizer: ChatTokenizer) -> PromptEncoding:
        mode = read_mode(request, self.conventions)
        text = render(request, mode, self.dialect, tokenizer.guarded)
        return PromptEncoding(tuple(tokenizer.encode(text)), reasoning="always" if mode.thinking else "never")

    def constrain(self, request: ChatRequest, prompt: PromptEncoding = PLAIN) -> Constraints:
        del prompt  # the request says it all
        thinking = read_mode(request, self.conventions).thinking
        return constraints(request, self.dialect.dsml, thinking=thinking, bounds=self._bounds)

    def parser(self, output: OutputSpec) -> OutputParser:
        return DsmlParser(
            self.dialect.dsml,
            parse_calls=output.parse_calls,
            starts_in_reasoning=output.starts_in_reasoning,
            markup=output.markup,
        )
