"""What the formats of Qwen's models have in common: the checkpoint's own template renders the prompt.

``developer`` is ``system``, and several such messages at the beginning are one. ``enable_thinking`` of
``chat_template_kwargs`` goes to the template, ``reasoning_effort`` ``none`` turns it off. Reasoning of past turns goes
to the template as ``reasoning_content``; Qwen's keep it behind the last question only. Line breaks around the
reasoning, and those that part a call from the text before it, are the template's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from heptagram_backend.conversation import ChatRequest, Conventions, Message, PastCall
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import (
    PLAIN,
    AnswerBounds,
    ChatTokenizer,
    Constraints,
    OutputParser,
    PromptEncoding,
)
from heptagram_backend.formats.hermes.markup import CALL_BEGIN
from heptagram_backend.formats.hermes.parse import CallParser, CallReader, PlainParser
from heptagram_backend.formats.policy import CallForm, constraints
from heptagram_backend.formats.qwen3.markup import (
    BEHIND_REASONING,
    CONTROL_TOKENS,
    MARKERS,
    THINK_BEGIN,
    THINK_END,
    reasoning_of,
)
from heptagram_backend.formats.reasoning import ReasoningParser, ReasoningTag
from heptagram_backend.formats.template import (
    Guard,
    TemplateMessage,
    declared_tools,
    in_call_order,
    with_one_system,
)
from heptagram_backend.generation import OutputSpec
from heptagram_backend.requests.fields import invalid

_SWITCH = "enable_thinking"


class QwenFormat:
    """See :class:`heptagram_backend.formats.base.Format`. Stateless; one serves all requests."""

    name: ClassVar[str]
    before_call: ClassVar[str]
    markers: ClassVar[frozenset[str] | None] = MARKERS
    conventions: ClassVar[Conventions] = Conventions()

    def __init__(self, bounds: AnswerBounds | None = None) -> None:
        self._bounds = bounds or AnswerBounds()

    @abstractmethod
    def past_call(self, call: PastCall, guarded: Guard) -> TemplateMessage:
        """A call of the history: ``name`` and ``arguments`` as the template takes them."""

    @abstractmethod
    def form(self, request: ChatRequest, bounds: AnswerBounds) -> CallForm: ...

    @abstractmethod
    def reader(self, output: OutputSpec) -> Callable[[], CallReader]: ...

    def known(self, request: ChatRequest) -> Mapping[str, Mapping[str, str]]:  # noqa: ARG002
        """What the reader must know of the tools."""
        return {}

    def check(self, tokenizer: ChatTokenizer) -> None:
        missing = [token for token in CONTROL_TOKENS if tokenizer.token_id(token) is None]
        if missing:
            raise ReleaseError(
                f"format: {self.name} needs {' and '.join(missing)}, but the checkpoint's tokenizer has no such "
                "control token; point `checkpoint` at a Qwen3 model, or choose another `format` (chatml_json serves "
                "older ones)"
            )

    def encode(self, request: ChatRequest, tokenizer: ChatTokenizer) -> PromptEncoding:
        guarded = tokenizer.guarded
        text = tokenizer.render(
            self.messages(request, guarded), tools=declared_tools(request, guarded), **_switches(request)
        )
        return PromptEncoding(tuple(tokenizer.encode(text)), reasoning_of(text))

    def messages(self, request: ChatRequest, guarded: Guard = str) -> list[TemplateMessage]:
        """The messages as the checkpoint's template gets them."""
        return list(self._messages(request, guarded))

    def constrain(self, request: ChatRequest, prompt: PromptEncoding = PLAIN) -> Constraints:
        reasoning = ReasoningTag(prompt.reasoning, THINK_BEGIN, THINK_END, (CALL_BEGIN,), BEHIND_REASONING)
        held = constraints(request, self.form(request, self._bounds), self._bounds, reasoning)
        return Constraints(held.constraint, held.trigger, held.schemas, self.known(request))

    def parser(self, output: OutputSpec) -> OutputParser:
        calls = output.parse_calls
        return ReasoningParser(
            CallParser(output.markup, self.reader(output), before=self.before_call) if calls else PlainParser(),
            begin=THINK_BEGIN,
            end=THINK_END,
            inside=output.starts_in_reasoning,
            markup=output.markup,
        )

    def _messages(self, request: ChatRequest, guarded: Guard) -> Iterator[TemplateMessage]:
        system, rest = with_one_system(request.messages)
        if system is not None:
            yield {"role": "system", "content": guarded(system)}
        for message in in_call_order(rest):
            yield self._message(message, guarded)

    def _message(self, message: Message, guarded: Guard) -> TemplateMessage:
        role = "system" if message.role == "developer" else message.role
        made: TemplateMessage = {"role": role, "content": guarded(message.content or "")}
        if message.reasoning:
            made["reasoning_content"] = guarded(message.reasoning)
        if message.calls:
            made["tool_calls"] = [
                {"type": "function", "function": self.past_call(call, guarded)} for call in message.calls
            ]
        return made


def _switches(request: ChatRequest) -> dict[str, Any]:
    switches = dict(request.chat_template_kwargs)
    if request.reasoning_effort is None:
        return switches
    if switches.get(_SWITCH):
        raise invalid(f"chat_template_kwargs.{_SWITCH}", "disagrees with the reasoning_effort 'none'; send one of them")
    return {**switches, _SWITCH: False}
