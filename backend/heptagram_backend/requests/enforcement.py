"""Which schemas are enforced: what ``strict`` means.

=================  ======================================================
``tool_choice``    enforced
=================  ======================================================
required, named    every callable tool, except where ``strict`` is false
auto               tools with ``strict`` true
none               none
=================  ======================================================

A response format is always enforced. An enforced schema that cannot be is a 400, never a silent exception; with
``heptagram.unenforced`` ``validate`` what only a check can decide is left to the check of the finished value.
"""

from __future__ import annotations

from dataclasses import replace

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.tools import SCHEMA_PATH
from heptagram_backend.schema import Budget, SchemaLimits, walk, walk_parameters
from heptagram_wire import errors as codes

_SWITCH = '; or send `heptagram`: {"unenforced": "validate"}, and the finished value is checked instead'


def enforce(request: ChatRequest, limits: SchemaLimits | None = None) -> ChatRequest:
    """Walk the schemas that the request's policy enforces; all of them share one budget.

    Raises:
        RequestError: a schema cannot be enforced; ``param`` names the tool. The message names
            ``heptagram.unenforced`` where that would help.
    """
    limits = limits or SchemaLimits()
    try:
        return _walked(request, limits)
    except RequestError as error:
        wire = error.wire
        if wire.code != codes.UNSUPPORTED_SCHEMA or not _could_be_checked(request, limits):
            raise
        raise RequestError(wire.message + _SWITCH, code=wire.code, param=wire.param) from None


def _could_be_checked(request: ChatRequest, limits: SchemaLimits) -> bool:
    if request.unenforced == "validate":
        return False
    try:
        _walked(replace(request, unenforced="validate"), limits)
    except RequestError:
        return False
    return True


def _walked(request: ChatRequest, limits: SchemaLimits) -> ChatRequest:
    budget = Budget(limits)
    callable_names = {tool.name for tool in request.callable_tools}

    def enforced(index: int, tool: Tool) -> Tool:
        if tool.name not in callable_names or not _is_enforced(tool, request.tool_choice.mode):
            return tool
        param = f"tools[{index}].function.parameters"
        budget.text(param, tool.parameters)
        return replace(tool, enforced=walk_parameters(dict(tool.parameters), param, budget, request.unenforced))

    tools = tuple(enforced(index, tool) for index, tool in enumerate(request.tools))
    found = request.response_format
    if found is not None:
        budget.text(SCHEMA_PATH, found.schema)
        found = replace(found, schema=walk(dict(found.schema), SCHEMA_PATH, budget, request.unenforced))
    return replace(request, tools=tools, response_format=found)


def _is_enforced(tool: Tool, mode: str) -> bool:
    return {"required": tool.strict is not False, "auto": tool.strict is True}.get(mode, False)
