"""What a model family must offer: encode a conversation, build its constraint, read its output back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import OutputSpec, Trigger
from heptagram_wire.events import FinishReason


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call's name is known. Calls of one answer come one after the other; the emitter numbers them.

    Until its :class:`CallFinished` only its own arguments follow. Anything else, and the end of the text, leaves it
    unfinished for good: it was cut, or it was malformed and its whole markup follows as :class:`Text`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the JSON text of the open call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The open call is complete."""


When = Literal["never", "maybe", "always"]
Parsed = Text | Reasoning | CallBegin | CallArguments | CallFinished


class OutputParser(Protocol):
    """Sans-I/O reader of one answer. Any chunking of the same text gives the same merged pieces."""

    def feed(self, text: str) -> Sequence[Parsed]:
        """Read more text; hold back only what may be a partial tag."""

    def flush(self, reason: FinishReason | Literal["failure"]) -> Sequence[Parsed]:
        """The text is over: give out what was held back. A call that is still open stays unfinished."""


@dataclass(frozen=True, slots=True)
class PromptEncoding:
    """Token ids of the prompt, up to and including the header of the assistant turn to be generated.

    ``reasoning`` says what the prompt leaves to the answer: it begins inside its reasoning, or may open with some, or
    has none.
    """

    ids: tuple[int, ...]
    reasoning: When = "never"

    @property
    def starts_in_reasoning(self) -> bool:
        return self.reasoning == "always"


PLAIN: Final = PromptEncoding(())


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """What ends the values of a constrained answer whose schema has no bound of its own.

    ``string_tokens`` bounds one string in about that many tokens, ``array_items`` an array without ``maxItems`` and a
    map without ``maxProperties``. Text and reasoning outside of calls are bounded by ``max_tokens`` alone.
    """

    string_tokens: int = 8_192
    array_items: int = 256

    def __post_init__(self) -> None:
        for name in ("string_tokens", "array_items"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ReleaseError(f"answer.{name}: must be a whole number of at least 1, not {value!r}")


@dataclass(frozen=True, slots=True)
class Constraints:
    """What holds while the answer is generated. All empty: free text.

    ``schemas`` holds by tool name what a finished call must validate against, ``tools`` what the parser must know of
    the tools: see :class:`heptagram_backend.generation.OutputSpec`.
    """

    constraint: ConstraintSpec | None = None
    trigger: Trigger | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class Format(Protocol):
    """One model family. Chosen by name in ``release.yaml``, never by guessing. It is made with the bounds of the
    release; reading an answer back needs none."""

    name: str
    conventions: Conventions
    markers: frozenset[str] | None
    """The added tokens that the model generates as text; all others are silent, never shown and never allowed by a
    grammar. ``None``: only those that the tokenizer calls special are silent."""

    def check(self, tokenizer: ChatTokenizer) -> None:
        """Called once, before any request.

        Raises:
            ReleaseError: the checkpoint's tokenizer lacks what the format writes.
        """

    def encode(self, request: ChatRequest, tokenizer: ChatTokenizer) -> PromptEncoding:
        """Render and encode the conversation.

        Raises:
            RequestError: the checkpoint's template cannot express the conversation.
        """

    def constrain(self, request: ChatRequest, prompt: PromptEncoding = PLAIN) -> Constraints:
        """Build the structural tag and the trigger that ``tool_choice``, ``strict`` and ``response_format`` ask for.

        ``prompt`` is what :meth:`encode` made of the request: a checkpoint's template may decide whether it reasons.
        """

    def parser(self, output: OutputSpec) -> OutputParser: ...


class ChatTokenizer(Protocol):
    """A checkpoint's tokenizer and chat template, without torch."""

    @property
    def guard(self) -> str:
        """A character that :meth:`guarded` puts into control tokens of untrusted text."""

    def guarded(self, text: str) -> str:
        """Mark ``text`` so that control tokens inside it are later encoded as plain text."""

    def token_id(self, text: str) -> int | None:
        """The id of the control token ``text``; ``None`` when there is no such control token."""

    def render(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> str:
        """Apply the checkpoint's chat template with the generation prompt."""

    def encode(self, text: str) -> list[int]:
        """Token ids: control tokens of the template as such, guarded ones as plain text without the marks."""
