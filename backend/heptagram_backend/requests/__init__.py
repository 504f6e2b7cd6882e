"""From the text of a chat request to a validated :class:`~heptagram_backend.conversation.ChatRequest`.

The security boundary: whatever comes in, either a valid request or a RequestError comes out, in bounded time. Errors
name the field (``messages[1].tool_calls[0].function.arguments``) and carry no text of a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.enforcement import enforce
from heptagram_backend.requests.fields import Fields, shown
from heptagram_backend.requests.json_text import load_object
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.messages import read_messages
from heptagram_backend.requests.options import (
    check_rest,
    read_effort,
    read_max_tokens,
    read_ours,
    read_priority,
    read_stop,
    read_stop_token_ids,
    read_template_kwargs,
)
from heptagram_backend.requests.sampling import read_chat_logprobs, read_n, read_sampling
from heptagram_backend.requests.tools import read_response_format, read_tool_choice, read_tools
from heptagram_wire import errors as codes

__all__ = ["RequestLimits", "enforce", "parse_chat_request", "read_chat_request"]

ALIAS = "chat"  # the ensemble's name is always accepted as the model's


_COMMON = Conventions()


def parse_chat_request(
    raw: bytes | str, limits: RequestLimits, served_model: str, conventions: Conventions = _COMMON
) -> ChatRequest:
    """Read one request. Schemas are not walked yet: :func:`enforce` does that.

    Args:
        raw: JSON text of one object.
        limits: bounds of this server.
        served_model: the name that ``model`` must have; it may also be ``chat`` or absent.
        conventions: what the model's format takes.

    Raises:
        RequestError: anything that is wrong with it.
    """
    return read_chat_request(load_object(raw, limits), limits, served_model, conventions)


def read_chat_request(
    data: Mapping[str, Any], limits: RequestLimits, served_model: str, conventions: Conventions = _COMMON
) -> ChatRequest:
    """The same for a request in Python objects, where any iterable but text and mappings is a list.

    ``data`` is left as it is; its texts and its depth are trusted.
    """
    fields = Fields(data)
    _check_model(fields, served_model)
    tools = read_tools(fields, limits)
    request = ChatRequest(
        messages=read_messages(fields, limits, conventions),
        model=served_model,
        tools=tools,
        tool_choice=read_tool_choice(fields, tools, limits),
        parallel_tool_calls=fields.flag("parallel_tool_calls", True),
        response_format=read_response_format(fields),
        max_tokens=read_max_tokens(fields),
        stop=read_stop(fields, limits),
        stop_token_ids=read_stop_token_ids(fields, limits),
        ignore_eos=fields.flag("ignore_eos", False),
        stream=fields.flag("stream", True),
        return_token_ids=fields.flag("return_token_ids", False),
        sampling=read_sampling(fields),
        n=read_n(fields, limits),
        logprobs=read_chat_logprobs(fields),
        priority=read_priority(fields),
        reasoning_effort=read_effort(fields, conventions),
        chat_template_kwargs=read_template_kwargs(fields, limits),
        **read_ours(fields),
    )
    check_rest(fields)
    fields.refuse_unknown()
    return request


def _check_model(fields: Fields, served_model: str) -> None:
    name = fields.text("model")
    if name not in (None, served_model, ALIAS):
        raise RequestError(
            f"there is no model {shown(str(name))}; this server has {shown(served_model)}",
            code=codes.MODEL_NOT_FOUND,
            param="model",
        )
