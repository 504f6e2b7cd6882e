"""``tools``, ``tool_choice`` and ``response_format``.

Without tools ``auto`` and ``none`` mean a plain chat; ``required`` and a named tool are refused. Names are qualified by
their namespaces before anything is compared, so a name alone never means a tool that has a namespace.
"""

from __future__ import annotations

from typing import Any, cast

from heptagram_backend.conversation import ResponseFormat, Tool, ToolChoice
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.fields import Fields, invalid, shown, unsupported, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.requests.namespaces import QualifiedName, read_name
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
    for index, entry in enumerate(fields.list("tools", longest=limits.tools, code=codes.TOO_MANY_TOOLS) or []):
        tool = _tool(Fields(entry, f"tools[{index}]"), limits)
        if any(other.name == tool.name for other in tools):
            raise invalid(
                f"tools[{index}].function.name", f"{shown(tool.name)} is declared twice; give each tool its own name"
            )
        tools.append(tool)
    return tuple(tools)


def read_tool_choice(fields: Fields, tools: tuple[Tool, ...], limits: RequestLimits) -> ToolChoice:
    """Read ``tool_choice`` in all its forms.

    Raises:
        RequestError: an unknown form or name, or a call is demanded without tools.
    """
    value = fields.get("tool_choice")
    choice = ToolChoice("auto") if value is None else _choice(value, limits)
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
    return ResponseFormat(schema, declared=schema)


def _tool(tool: Fields, limits: RequestLimits) -> Tool:
    kind = tool.required_text("type")
    if kind != "function":
        raise unsupported(tool.at("type"), f"tools of type {shown(kind)} are not supported; declare functions")
    function = Fields(tool.require("function"), tool.at("function"))
    name = read_name(function, limits, tool)
    tool.refuse_unknown()
    parameters = function.get("parameters")
    path = function.at("parameters")
    if not isinstance(parameters, dict | None):
        raise wrong_type(path, "an object", parameters)
    parameters = parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        raise invalid(path, 'the parameters of a tool are an object; write "type": "object"')
    strict = function.get("strict")
    description = _description(function.text("description"), name)
    found = Tool(
        name=name.text,
        description=description,
        parameters=parameters,
        strict=None if strict is None else function.flag("strict", False),
        declared=_declared(function, name, description),
    )
    function.refuse_unknown()
    return found


def _description(own: str | None, name: QualifiedName) -> str | None:
    return own if name.description is None else f"{name.description}\n{own or ''}"


def _declared(function: Fields, name: QualifiedName, description: str | None) -> dict[str, Any]:
    """The function as it was written, under its qualified name and the description of both."""
    declared = {**function.data, "name": name.text, "description": description}
    return {key: value for key, value in declared.items() if value is not None and key != "namespace"}


def _choice(value: Any, limits: RequestLimits) -> ToolChoice:
    if isinstance(value, str):
        if value not in _MODES:
            raise invalid("tool_choice", f"{shown(value)} is no choice; {_FORMS}")
        return ToolChoice(cast(Any, value))
    fields = Fields(value, "tool_choice")
    kind = fields.required_text("type")
    if kind == "function":
        return ToolChoice("required", (_reference(fields, limits),))
    if kind != "allowed_tools":
        raise unsupported("tool_choice.type", f"{shown(kind)} is not supported; {_FORMS}")
    return _allowed(fields, limits)


def _allowed(fields: Fields, limits: RequestLimits) -> ToolChoice:
    """``{"type": "allowed_tools", "allowed_tools": {mode, tools}}``, or with mode and tools beside the type."""
    inner = fields.nested("allowed_tools") or fields
    inner.require("mode")
    mode = inner.choice("mode", ("auto", "required"))
    entries = inner.list("tools", longest=limits.tools, code=codes.TOO_MANY_TOOLS)
    if not entries:
        raise invalid(inner.at("tools"), "must name at least one tool")
    names = []
    for index, entry in enumerate(entries):
        reference = Fields(entry, f"{inner.at('tools')}[{index}]")
        if reference.required_text("type") != "function":
            raise unsupported(reference.at("type"), "only functions are supported")
        names.append(_reference(reference, limits))
    inner.refuse_unknown()
    fields.refuse_unknown()
    return ToolChoice(cast(Any, mode), tuple(dict.fromkeys(names)))


def _reference(fields: Fields, limits: RequestLimits) -> str:
    """The name in ``{"type": "function", "function": {"name": ...}}`` or ``{"type": "function", "name": ...}``."""
    function = fields.nested("function")
    if function is None:
        name = read_name(fields, limits).text
    else:
        name = read_name(function, limits, fields).text
        function.refuse_unknown()
    fields.refuse_unknown()
    return name
