"""A chat request after validation: what formats encode and constrain. Valid once built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heptagram_backend.generation import DraftSource, SamplingParams
from heptagram_backend.schema.place import Unenforced

Role = Literal["system", "developer", "user", "assistant", "tool", "latest_reminder"]
ToolMarkup = Literal["guarded", "free"]


@dataclass(frozen=True, slots=True)
class Conventions:
    """What a format takes of a request beyond what all of them take.

    ``efforts`` are the names that ``reasoning_effort`` may have beside ``none``, ``effort_range`` bounds a number in
    its place; without both no effort is taken.
    """

    roles: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool")
    efforts: tuple[str, ...] = ()
    effort_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function; ``name`` is ``namespace::name`` where it has a namespace. ``parameters`` is the schema as
    the caller wrote it (it goes into the prompt); ``enforced`` is what the schema walker made of it for the grammar
    alone (its patterns speak about JSON text, so finished values are validated against ``parameters``), ``None`` where
    the policy holds the shape only. ``declared`` is the function as the caller wrote it, its keys in their order, but
    with the qualified name, the description of its namespace before its own, and no nulls."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
    strict: bool | None = None
    enforced: Mapping[str, Any] | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def declaration(self) -> Mapping[str, Any]:
        """``declared``, or what it would be of a tool that was made without one."""
        made = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return self.declared or {key: value for key, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call of an earlier assistant turn. ``arguments`` is a JSON object, or any text where it was cut."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """``content`` is plain text (``parts`` of it joined by a line break); ``None`` only for an assistant turn with
    calls. ``parts`` is empty where the caller sent one string."""

    role: Role
    content: str | None
    reasoning: str | None = None
    calls: tuple[PastCall, ...] = ()
    call_id: str | None = None
    name: str | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``names`` limits the choice: one name for a named tool, several for allowed_tools, ``None`` for all tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """``schema`` is the walked schema of json_schema, ``declared`` what the caller wrote; for json_object both are
    that of any object."""

    schema: Mapping[str, Any]
    declared: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})


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
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    logprobs: int | None = None
    stream: bool = True
    return_token_ids: bool = False
    priority: int = 0
    deadline_ms: int | None = None
    num_speculative_tokens: int | None = None
    drafts: DraftSource | None = None
    tool_markup: ToolMarkup = "guarded"
    unenforced: Unenforced = "refuse"
    reasoning_effort: str | int | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that this turn may call."""
        names = self.tool_choice.names
        return self.tools if names is None else tuple(tool for tool in self.tools if tool.name in names)
