"""A conversation as plain ChatML messages: tools, calls and results are written into the text of the messages.

So it works with any checkpoint whose template knows roles and contents only. Text of the caller is *guarded*: control
tokens in it stay plain text; the markup itself is not, for it may be tokens of its own. ``developer`` is ``system``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from heptagram_backend.conversation import ChatRequest, Message, Tool
from heptagram_backend.formats.hermes.markup import (
    BETWEEN_CALLS,
    CALL_BEGIN,
    CALL_END,
    Guard,
    call_text,
    canonical_arguments,
    result_text,
    without_result_tags,
)
from heptagram_backend.formats.template import in_call_order

RenderedMessage = dict[str, str]

_TOOLS_HEAD = """\
# Functions
<tools>
"""
# The example stands last: a small model that has just seen a turn end behind one call ends its own there too. Telling
# SmolLM2 about several calls made it repeat the first one up to the token limit.
_TOOLS_TAIL = f"""
</tools>

Answer with one JSON object inside {CALL_BEGIN} and {CALL_END} tags:
{call_text("NAME", "{...}")}"""


def render_messages(request: ChatRequest, guarded: Guard) -> list[RenderedMessage]:
    """The messages for the checkpoint's template; ``guarded`` is applied to everything that the caller wrote."""
    messages = list(_turns(request.messages, guarded))
    if request.tools:
        _declare(request.tools, messages, guarded)
    return messages


def _turns(messages: Sequence[Message], guarded: Guard) -> Iterator[RenderedMessage]:
    for is_result, group in groupby(in_call_order(messages), lambda message: message.role == "tool"):
        if is_result:
            texts = (result_text(guarded(without_result_tags(result.content or ""))) for result in group)
            yield {"role": "user", "content": BETWEEN_CALLS.join(texts)}
            continue
        for message in group:
            yield _turn(message, guarded)


def _turn(message: Message, guarded: Guard) -> RenderedMessage:
    if message.role == "assistant":
        return _assistant(message, guarded)
    content = message.content or ""
    if message.role == "user":
        return {"role": "user", "content": guarded(without_result_tags(content))}
    return {"role": "system", "content": guarded(content)}


def _assistant(message: Message, guarded: Guard) -> RenderedMessage:
    calls = [call_text(call.name, canonical_arguments(call.arguments), guarded) for call in message.calls]
    content = [guarded(message.content)] if message.content else []
    return {"role": "assistant", "content": BETWEEN_CALLS.join(content + calls)}


def _declare(tools: Sequence[Tool], messages: list[RenderedMessage], guarded: Guard) -> None:
    """Write the tools behind the system message, which is added when the conversation begins without one."""
    lines = "\n".join(_declaration(tool) for tool in tools)
    block = f"{_TOOLS_HEAD}{guarded(lines)}{_TOOLS_TAIL}"
    if messages and messages[0]["role"] == "system":
        head = messages[0]["content"]
        messages[0] = {"role": "system", "content": f"{head}\n\n{block}" if head else block}
    else:
        messages.insert(0, {"role": "system", "content": block})


def _declaration(tool: Tool) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    declared = {key: value for key, value in function.items() if value is not None}
    return json.dumps({"type": "function", "function": declared}, ensure_ascii=False)
