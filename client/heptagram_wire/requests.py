"""The JSON of a chat request: OpenAI's chat-completions fields, vLLM's extras, and ours under ``heptagram``.

The types are for writing requests; a server never trusts them and validates every field. What the engine cannot do yet
is in the types all the same and is answered with a 400 ``unsupported``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


Content = str | Sequence[TextPart]


class CallFunction(TypedDict):
    name: str
    arguments: str  # JSON text


class MessageCall(TypedDict):
    """A tool call of an earlier assistant turn."""

    id: str
    type: Literal["function"]
    function: CallFunction


class Message(TypedDict, total=False):
    """One turn. ``tool_call_id`` belongs to role ``tool``; ``tool_calls`` and reasoning to role ``assistant``."""

    role: Required[Literal["system", "developer", "user", "assistant", "tool"]]
    content: Content | None
    name: str
    reasoning_content: str | None
    tool_calls: Sequence[MessageCall]
    tool_call_id: str


class Function(TypedDict, total=False):
    name: Required[str]
    description: str
    parameters: Mapping[str, Any]  # JSON Schema
    strict: bool | None


class Tool(TypedDict):
    type: Literal["function"]
    function: Function


class FunctionName(TypedDict):
    name: str


class NamedTool(TypedDict):
    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class JsonSchema(TypedDict, total=False):
    name: Required[str]
    description: str
    schema: Mapping[str, Any]
    strict: bool | None


class ResponseFormat(TypedDict, total=False):
    type: Required[Literal["text", "json_object", "json_schema"]]
    json_schema: JsonSchema


class StreamOptions(TypedDict, total=False):
    include_usage: bool


class HeptagramOptions(TypedDict, total=False):
    """Ours. ``deadline_ms`` counts from admission; ``num_speculative_tokens`` is 0 to 7.

    ``unenforced`` says what becomes of a schema keyword that the grammar cannot hold: the request is refused, or the
    finished call or answer is validated, and a violation is a ``failure`` event.
    """

    deadline_ms: int
    num_speculative_tokens: int
    drafts: str
    tool_markup: Literal["guarded", "free"]
    unenforced: Literal["refuse", "validate"]


class ChatRequest(TypedDict, total=False):
    messages: Required[Sequence[Message]]
    model: str
    tools: Sequence[Tool]
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    response_format: ResponseFormat
    max_tokens: int | None
    max_completion_tokens: int | None
    temperature: float | None
    top_p: float | None
    n: int
    stop: str | Sequence[str] | None
    seed: int | None
    logit_bias: Mapping[str, float] | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logprobs: bool | None
    top_logprobs: int | None
    stream: bool
    stream_options: StreamOptions | None
    user: str
    # vLLM's extras.
    ignore_eos: bool
    stop_token_ids: Sequence[int]
    min_p: float
    top_k: int
    repetition_penalty: float
    chat_template_kwargs: Mapping[str, Any]
    priority: int
    return_token_ids: bool
    heptagram: HeptagramOptions


def encode_request(request: Mapping[str, object]) -> str:
    """Write a request as the JSON text of input ``request``.

    Raises:
        ValueError: the request holds something that JSON cannot (NaN, a lone surrogate, a foreign object).
    """
    try:
        text = json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the request cannot be written as JSON: {error}") from error
    return text
