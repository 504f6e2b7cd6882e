"""Which schemas are enforced: what ``strict`` means.

=================  ======================================================
``tool_choice``    enforced
=================  ======================================================
required, named    every callable tool, except where ``strict`` is false
auto               tools with ``strict`` true
none               none
=================  ======================================================

A response format is always enforced. An enforced schema that cannot be is a 400, never a silent exception.
"""

from __future__ import annotations

from dataclasses import replace

from heptagram_backend.conversation import ChatRequest, Tool
from heptagram_backend.requests.tools import SCHEMA_PATH
from heptagram_backend.schema import Budget, walk, walk_parameters


def enforce(request: ChatRequest) -> ChatRequest:
    """Walk the schemas that the request's policy enforces; all of them share one budget.

    Raises:
        RequestError: a schema cannot be enforced; ``param`` names the tool.
    """
    budget = Budget()
    callable_names = {tool.name for tool in request.callable_tools}
    tools = tuple(
        replace(tool, enforced=walk_parameters(dict(tool.parameters), f"tools[{index}].function.parameters", budget))
        if tool.name in callable_names and _is_enforced(tool, request.tool_choice.mode)
        else tool
        for index, tool in enumerate(request.tools)
    )
    found = request.response_format
    wanted = None if found is None else replace(found, schema=walk(dict(found.schema), SCHEMA_PATH, budget))
    return replace(request, tools=tools, response_format=wanted)


def _is_enforced(tool: Tool, mode: str) -> bool:
    return {"required": tool.strict is not False, "auto": tool.strict is True}.get(mode, False)
