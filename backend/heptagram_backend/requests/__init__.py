"""From the text of a chat request to a validated :class:`~heptagram_backend.conversation.ChatRequest`.

The security boundary: whatever comes in, either a valid request or a RequestError comes out, in bounded time. Errors
name the field (``messages[1].tool_calls[0].function.arguments``) and carry no text of a library.
"""

from __future__ import annotations

from heptagram_backend.conversation import ChatRequest
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.enforcement import enforce
from heptagram_backend.requests.fields import Fields, shown
from heptagram_backend.requests.json_text import load_object
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.messages import read_messages
from heptagram_backend.requests.options import (
    check_rest,
    check_sampling,
    read_max_tokens,
    read_ours,
    read_priority,
    read_stop,
    read_stop_token_ids,
    read_template_kwargs,
)
from heptagram_backend.requests.tools import read_response_format, read_tool_choice, read_tools
from heptagram_wire import errors as codes

__all__ = ["RequestLimits", "enforce", "parse_chat_request"]

ALIAS = "chat"  # the ensemble's name is always accepted as the model's


def parse_chat_request(raw: bytes | str, limits: RequestLimits, served_model: str) -> ChatRequest:
    """Read one request. Schemas are not walked yet: :func:`enforce` does that.

    Args:
        raw: JSON text of one object.
        limits: bounds of this server.
        served_model: the name that ``model`` must have; it may also be ``chat`` or absent.

    Raises:
        RequestError: anything that is wrong with it.
    """
    fields = Fields(load_object(raw, limits))
    _check_model(fields, served_model)
    tools = read_tools(fields, limits)
    request = ChatRequest(
        messages=read_messages(fields, limits),
        model=served_model,
        tools=tools,
        tool_choice=read_tool_choice(fields, tools),
        parallel_tool_calls=fields.flag("parallel_tool_calls", True),
        response_format=read_response_format(fields),
        max_tokens=read_max_tokens(fields),
        stop=read_stop(fields, limits),
        stop_token_ids=read_stop_token_ids(fields, limits),
        ignore_eos=fields.flag("ignore_eos", False),
        stream=fields.flag("stream", True),
        return_token_ids=fields.flag("return_token_ids", False),
        priority=read_priority(fields),
        chat_template_kwargs=read_template_kwargs(fields, limits),
        **read_ours(fields),
    )
    check_sampling(fields)
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
