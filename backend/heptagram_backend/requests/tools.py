"""``tools``, ``tool_choice`` and ``response_format``.

Without tools ``auto`` and ``none`` mean a plain chat; ``required`` and a named tool are refused. A name may also hold
``.`` and ``:``, so that ``namespace::name`` can be written.
"""

from __future__ import annotations

from typing import Any, cast

from heptagram_backend.conversation import ResponseFormat, Tool, ToolChoice
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.fields import Fields, invalid, shown, unsupported, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.messages import read_name
from heptagram_wire import errors as codes

_MODES = ("auto", "none", "required")
_FORMS = 'write "auto", "none", "required" or {"type": "function", "function": {"name": ...}}'
SCHEMA_PATH = "response_format.json_schema.schema"


def read_tools(fields: Fields, limits: RequestLimits) -> tuple[Tool, ...]:
    """Read ``tools``. Schemas are checked only where they are enforced.

    Raises:
        RequestError: a tool is no function, lacks a name, or has the name of another.
    """
    for key in ("functions", "function_call"):
        if fields.get(key) is not None:
            raise unsupported(key, "this older form is not supported; write `tools` and `tool_choice`")
    tools: list[Tool] = []
    for index, entry in enumerate(fields.list("tools", longest=limits.tools) or []):
        tool = _tool(Fields(entry, f"tools[{index}]"), limits)
        if any(other.name == tool.name for other in tools):
            raise invalid(
                f"tools[{index}].function.name", f"{shown(tool.name)} is declared twice; give each tool its own name"
            )
        tools.append(tool)
    return tuple(tools)


def read_tool_choice(fields: Fields, tools: tuple[Tool, ...]) -> ToolChoice:
    """Read ``tool_choice`` in all its forms.

    Raises:
        RequestError: an unknown form or name, or a call is demanded without tools.
    """
    value = fields.get("tool_choice")
    choice = ToolChoice("auto") if value is None else _choice(value)
    if choice.mode == "required" and not tools:
        raise invalid("tool_choice", "a call is demanded, but there are no `tools`; declare some")
    declared = [tool.name for tool in tools]
    for name in choice.names or ():
        if name not in declared:
            listed = ", ".join(declared[:20]) or "none"
            raise invalid("tool_choice", f"there is no tool {shown(name)}; declared are {listed}")
    return choice


def read_response_format(fields: Fields) -> ResponseFormat | None:
    """Read ``response_format``; ``text`` is none. The schema is the caller's, not walked yet.

    Raises:
        RequestError: an unknown type, or no schema where one belongs.
    """
    found = fields.nested("response_format")
    if found is None:
        return None
    found.require("type")
    kind = found.choice("type", ("text", "json_object", "json_schema"))
    declared = found.nested("json_schema")
    found.refuse_unknown()
    if kind != "json_schema":
        if declared is not None:
            raise invalid(found.at("json_schema"), 'belongs to "type": "json_schema" only; leave it out')
        return ResponseFormat({"type": "object", "additionalProperties": True}) if kind == "json_object" else None
    if declared is None:
        raise RequestError("this field is required", code=codes.MISSING, param=found.at("json_schema"))
    declared.text("name")
    declared.text("description")
    declared.flag("strict", True)
    schema = declared.require("schema")
    declared.refuse_unknown()
    if not isinstance(schema, dict):
        raise wrong_type(SCHEMA_PATH, "an object", schema)
    return ResponseFormat(schema)


def _tool(tool: Fields, limits: RequestLimits) -> Tool:
    kind = tool.required_text("type")
    if kind != "function":
        raise unsupported(tool.at("type"), f"tools of type {shown(kind)} are not supported; declare functions")
    function = Fields(tool.require("function"), tool.at("function"))
    tool.refuse_unknown()
    parameters = function.get("parameters")
    path = function.at("parameters")
    if not isinstance(parameters, dict | None):
        raise wrong_type(path, "an object", parameters)
    parameters = parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        raise invalid(path, 'the parameters of a tool are an object; write "type": "object"')
    strict = function.get("strict")
    found = Tool(
        name=read_name(function, "name", limits),
        description=function.text("description"),
        parameters=parameters,
        strict=None if strict is None else function.flag("strict", False),
    )
    function.refuse_unknown()
    return found


def _choice(value: Any) -> ToolChoice:
    if isinstance(value, str):
        if value not in _MODES:
            raise invalid("tool_choice", f"{shown(value)} is no choice; {_FORMS}")
        return ToolChoice(cast(Any, value))
    fields = Fields(value, "tool_choice")
    kind = fields.required_text("type")
    if kind == "function":
        name = _reference(fields)
        return ToolChoice("required", (name,))
    if kind != "allowed_tools":
        raise unsupported("tool_choice.type", f"{shown(kind)} is not supported; {_FORMS}")
    return _allowed(fields)


def _allowed(fields: Fields) -> ToolChoice:
    """``{"type": "allowed_tools", "allowed_tools": {mode, tools}}``, or with mode and tools beside the type."""
    inner = fields.nested("allowed_tools") or fields
    inner.require("mode")
    mode = inner.choice("mode", ("auto", "required"))
    entries = inner.list("tools", longest=128)
    if not entries:
        raise invalid(inner.at("tools"), "must name at least one tool")
    names = []
    for index, entry in enumerate(entries):
        reference = Fields(entry, f"{inner.at('tools')}[{index}]")
        if reference.required_text("type") != "function":
            raise unsupported(reference.at("type"), "only functions are supported")
        names.append(_reference(reference))
    inner.refuse_unknown()
    fields.refuse_unknown()
    return ToolChoice(cast(Any, mode), tuple(dict.fromkeys(names)))


def _reference(fields: Fields) -> str:
    """The name in ``{"type": "function", "function": {"name": ...}}`` or ``{"type": "function", "name": ...}``."""
    function = fields.nested("function")
    name = (function or fields).required_text("name")
    if function is not None:
        function.refuse_unknown()
    fields.refuse_unknown()
    return name
