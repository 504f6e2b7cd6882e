"""A conversation as the messages that a checkpoint's own chat template takes. Text of the caller is *guarded*."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from heptagram_backend.conversation import ChatRequest, Message, PastCall

Guard = Callable[[str], str]
TemplateMessage = dict[str, Any]

_BETWEEN_SYSTEM_TEXTS = "\n\n"
_UNREADABLE = "arguments"


def in_call_order(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages, neighbouring results in the order of the calls of the last turn that made some; those of unknown
    calls come last."""
    order: Mapping[str, int] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        yield from _sorted(results, order)
        results = []
        if message.role == "assistant":
            order = {call.id: place for place, call in enumerate(message.calls)}
        yield message
    yield from _sorted(results, order)


def _sorted(results: Sequence[Message], order: Mapping[str, int]) -> list[Message]:
    return sorted(results, key=lambda result: order.get(result.call_id or "", len(order)))


def with_one_system(messages: Sequence[Message]) -> tuple[str | None, Sequence[Message]]:
    """What the system and developer messages at the beginning say, and the messages behind them: templates know one."""
    count = 0
    while count < len(messages) and messages[count].role in ("system", "developer"):
        count += 1
    texts = [message.content or "" for message in messages[:count]]
    return (_BETWEEN_SYSTEM_TEXTS.join(texts) if texts else None), messages[count:]


def declared_tools(request: ChatRequest, guarded: Guard) -> list[TemplateMessage] | None:
    """The functions as the template takes them; ``None`` for none."""
    tools = [{"type": "function", "function": guarded_json(tool.declaration, guarded)} for tool in request.tools]
    return tools or None


def guarded_json(value: Any, guarded: Guard) -> Any:
    """JSON data with each of its strings guarded."""
    if isinstance(value, str):
        return guarded(value)
    if isinstance(value, Mapping):
        return {guarded(key): guarded_json(child, guarded) for key, child in value.items()}
    return [guarded_json(child, guarded) for child in value] if isinstance(value, list | tuple) else value


def read_arguments(call: PastCall, *, writable: Callable[[str], bool] = bool) -> Mapping[str, Any]:
    """The arguments of a past call by name. What is no JSON object, even when read twice, or has a name that is not
    ``writable``, is one argument named ``arguments``: the text as it is."""
    try:
        value = json.loads(call.arguments or "{}")
        value = json.loads(value) if isinstance(value, str) else value
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
    except (ValueError, RecursionError):
        return {_UNREADABLE: call.arguments}
    return value if isinstance(value, dict) and all(map(writable, value)) else {_UNREADABLE: call.arguments}
