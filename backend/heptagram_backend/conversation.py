"""A chat request after validation: what formats encode and constrain. Valid once built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heptagram_backend.generation import DraftSource

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolMarkup = Literal["guarded", "free"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function. ``parameters`` is the schema as the caller wrote it (it goes into the prompt);
    ``enforced`` is what the schema walker made of it for the grammar alone (its patterns speak about JSON text, so
    finished values are validated against ``parameters``), ``None`` where the policy holds the shape only."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
    strict: bool | None = None
    enforced: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call of an earlier assistant turn. ``arguments`` is a JSON object, or any text where it was cut."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """``content`` is plain text (content parts are joined); ``None`` only for an assistant turn with calls."""

    role: Role
    content: str | None
    reasoning: str | None = None
    calls: tuple[PastCall, ...] = ()
    call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``names`` limits the choice: one name for a named tool, several for allowed_tools, ``None`` for all tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """``schema`` is the walked schema of json_schema; for json_object that of any object."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: tuple[Message, ...]
    model: str
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stream: bool = True
    return_token_ids: bool = False
    priority: int = 0
    deadline_ms: int | None = None
    num_speculative_tokens: int | None = None
    drafts: DraftSource | None = None
    tool_markup: ToolMarkup = "guarded"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that this turn may call."""
        names = self.tool_choice.names
        return self.tools if names is None else tuple(tool for tool in self.tools if tool.name in names)
