"""``messages``: roles, contents and past calls.

Lenient where clients differ harmlessly: fields that the OpenAI SDK dumps (``refusal``, ``audio``, ``annotations``,
``function_call``, ``index`` of a call) may be there as null or empty; a tool message may answer an id that no call in
the list has (a client may have cut the history); parts of text are joined by a line break; ``refusal`` text stands in
for a missing content. Arguments of past calls are text: empty, ``null`` and absent mean ``{}``, an object is written as
JSON, and what is no JSON at all (a call that was cut) is kept as it is.
"""

from __future__ import annotations

import json
from typing import Any, cast

from heptagram_backend.conversation import Conventions, Message, PastCall, Role
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.fields import Fields, invalid, is_list, shown, unsupported, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.namespaces import read_name
from heptagram_wire import errors as codes


def read_messages(fields: Fields, limits: RequestLimits, conventions: Conventions) -> tuple[Message, ...]:
    """Read ``messages`` of a request; ``conventions`` has the roles of the model.

    Raises:
        RequestError: missing, empty, or a message is not what its role may be.
    """
    fields.require("messages")
    entries = fields.list("messages", longest=limits.messages)
    if not entries:
        raise invalid("messages", "must hold at least one message")
    return tuple(_message(Fields(entry, f"messages[{i}]"), limits, conventions) for i, entry in enumerate(entries))


def _message(fields: Fields, limits: RequestLimits, conventions: Conventions) -> Message:
    fields.require("role")
    role = cast(Role, fields.choice("role", conventions.roles))
    content, parts = _content(fields)
    reasoning = None
    calls: tuple[PastCall, ...] = ()
    call_id = None
    name = fields.text("name", longest=limits.id)
    if role == "assistant":
        calls = _calls(fields, limits)
        reasoning = _reasoning(fields)
        content = _assistant_content(fields, content, calls)
    elif role == "tool":
        call_id = fields.required_text("tool_call_id", longest=limits.id)
        content = content or ""
    if content is None and not calls:
        raise RequestError(f"a {role} message needs a content", code=codes.MISSING, param=fields.at("content"))
    fields.refuse_unknown()
    return Message(role, content, reasoning=reasoning, calls=calls, call_id=call_id, name=name, parts=parts)


def _content(fields: Fields) -> tuple[str | None, tuple[str, ...]]:
    """The text, and its parts if it came in parts."""
    value = fields.get("content")
    if value is None or isinstance(value, str):
        return value, ()
    path = fields.at("content")
    if not is_list(value):
        raise wrong_type(path, "a string or a list of parts", value)
    texts = tuple(_part(Fields(part, f"{path}[{i}]")) for i, part in enumerate(value))
    return ("\n".join(texts) if texts else None), texts


def _part(part: Fields) -> str:
    kind = part.required_text("type")
    if kind not in ("text", "refusal"):
        raise unsupported(part.at("type"), f"parts of type {shown(kind)} are not supported; send text parts")
    part.require(kind)
    text = part.text(kind)
    part.refuse_unknown()
    assert text is not None
    return text


def _assistant_content(fields: Fields, content: str | None, calls: tuple[PastCall, ...]) -> str | None:
    refusal = fields.text("refusal")
    for key, instead in (("audio", "send its transcript as content"), ("function_call", "send `tool_calls`")):
        if fields.get(key) is not None:
            raise unsupported(fields.at(key), f"not supported; {instead}")
    if not isinstance(fields.get("annotations"), list | None):
        raise wrong_type(fields.at("annotations"), "a list", fields.get("annotations"))
    content = refusal if content is None else content
    if content is None and not calls:
        raise RequestError(
            "an assistant message needs a content or `tool_calls`", code=codes.MISSING, param=fields.at("content")
        )
    return content


def _reasoning(fields: Fields) -> str | None:
    """``reasoning_content`` and ``reasoning`` are two names of one thing; empty counts as absent."""
    return fields.text("reasoning_content") or fields.text("reasoning") or None


def _calls(fields: Fields, limits: RequestLimits) -> tuple[PastCall, ...]:
    entries = fields.list("tool_calls", longest=limits.tools) or []
    path = fields.at("tool_calls")
    return tuple(_call(Fields(entry, f"{path}[{i}]"), limits) for i, entry in enumerate(entries))


def _call(call: Fields, limits: RequestLimits) -> PastCall:
    kind = call.text("type")
    if kind not in (None, "function"):
        raise unsupported(call.at("type"), f"calls of type {shown(str(kind))} are not supported; send functions")
    call.whole("index", 0, 2**31)
    function = Fields(call.require("function"), call.at("function"))
    past = PastCall(
        id=call.required_text("id", longest=limits.id),
        name=read_name(function, limits, call).text,
        arguments=_arguments(function),
    )
    function.refuse_unknown()
    call.refuse_unknown()
    return past


def _arguments(function: Fields) -> str:
    value: Any = function.get("arguments")
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = function.text("arguments")
    return "{}" if text is None or text.strip() in ("", "null") else text
