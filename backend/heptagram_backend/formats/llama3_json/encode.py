"""A conversation as the messages that Llama's own template takes, which knows one call a turn and no text beside it.

So a turn of several calls becomes a turn for each, its results behind it, and the text of such a turn one of its own.
``developer`` is ``system``, and several such messages at the beginning are one. Reasoning is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from heptagram_backend.conversation import ChatRequest, Message, PastCall
from heptagram_backend.formats.hermes.markup import quoted
from heptagram_backend.formats.template import (
    Guard,
    TemplateMessage,
    guarded_json,
    read_arguments,
    with_one_system,
)


def template_messages(request: ChatRequest, guarded: Guard) -> Iterator[TemplateMessage]:
    system, rest = with_one_system(request.messages)
    if system is not None:
        yield {"role": "system", "content": guarded(system)}
    for place, message in enumerate(rest):
        if message.calls:
            results = list(takewhile(lambda later: later.role == "tool", rest[place + 1 :]))
            yield from _calls(message, results, guarded)
        elif message.role != "tool" or not _is_answered(rest, place):
            yield _message(message, guarded)


def _is_answered(messages: Sequence[Message], place: int) -> bool:
    """Does the result at ``place`` stand behind calls, with results only in between?"""
    before = next((message for message in reversed(messages[:place]) if message.role != "tool"), None)
    return before is not None and bool(before.calls)


def _calls(message: Message, results: Sequence[Message], guarded: Guard) -> Iterator[TemplateMessage]:
    if message.content:
        yield {"role": "assistant", "content": guarded(message.content)}
    ids = {call.id for call in message.calls}
    for call in message.calls:
        yield {"role": "assistant", "content": "", "tool_calls": [_call(call, guarded)]}
        yield from (_message(result, guarded) for result in results if result.call_id == call.id)
    yield from (_message(result, guarded) for result in results if result.call_id not in ids)


def _call(call: PastCall, guarded: Guard) -> TemplateMessage:
    # The template writes the name between quotes, and the arguments as JSON.
    arguments = guarded_json(read_arguments(call), guarded)
    return {"type": "function", "function": {"name": guarded(quoted(call.name)[1:-1]), "arguments": arguments}}


def _message(message: Message, guarded: Guard) -> TemplateMessage:
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": guarded(message.content or "")}
