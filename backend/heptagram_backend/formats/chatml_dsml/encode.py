"""A conversation as plain ChatML messages with DSML calls in their text. Text of the caller is *guarded*.

What a turn holds is DeepSeek's: results are part of a user's turn. The words that declare tools are ours, a third of
theirs, and stand in front of the tools, so that the prompts of all callers begin alike. ``developer`` is ``system``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.formats.deepseek_v4.encode import calls_text
from heptagram_backend.formats.deepseek_v4.markup import V4
from heptagram_backend.formats.deepseek_v4.turns import Guard, Turn, merged_turns

RenderedMessage = dict[str, str]

_EXAMPLE: Final = V4.invoke_text("NAME", [V4.parameter_text("PARAMETER", "VALUE", string=True)])
_TOOLS_HEAD: Final = f"""\
# Tools

A call is written like this, strings as they are with string="true", other values as JSON with string="false":
{V4.block_text([_EXAMPLE])}

These are the tools:

"""


def render_messages(request: ChatRequest, guarded: Guard) -> list[RenderedMessage]:
    """The messages for the checkpoint's template; ``guarded`` is applied to everything that the caller wrote."""
    messages = [_message(turn, guarded) for turn in merged_turns(request.messages, guarded)]
    if request.tools:
        _declare(request.tools, messages, guarded)
    return messages


def _message(turn: Turn, guarded: Guard) -> RenderedMessage:
    if turn.role == "assistant":
        return {"role": "assistant", "content": turn.text + calls_text(turn.calls, V4, guarded)}
    return {"role": "user" if turn.role == "user" else "system", "content": turn.text}


def _declare(tools: Sequence[Tool], messages: list[RenderedMessage], guarded: Guard) -> None:
    """Write the tools behind the system message, which is added when the conversation begins without one."""
    block = _TOOLS_HEAD + "\n".join(guarded(json.dumps(tool.declaration, ensure_ascii=False)) for tool in tools)
    if messages and messages[0]["role"] == "system":
        head = messages[0]["content"]
        messages[0] = {"role": "system", "content": f"{head}\n\n{block}" if head else block}
    else:
        messages.insert(0, {"role": "system", "content": block})
