"""Request bodies as JSON Schema, made of the field tables: a field of a table is in the document, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_gateway.chat.table import CHAT
from heptagram_gateway.completions.request import COMPLETIONS
from heptagram_gateway.fields import Check, Each, Only, Shape, Table, flag, mapping, number, text
from heptagram_gateway.messages.table import MESSAGES
from heptagram_gateway.responses.table import RESPONSES

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_WHOLE: Final[Schema] = {"type": "integer"}
_NUMBER: Final[Schema] = {"type": "number"}
_OBJECT: Final[Schema] = {"type": "object"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _any(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _each(schema: Schema, *names: str) -> Mapping[str, Schema]:
    return dict.fromkeys(names, schema)


_CHECKS: Final[Mapping[Check, Schema]] = {
    text: {"type": "string", "maxLength": 1024},
    flag: _FLAG,
    number: _NUMBER,
    mapping: _OBJECT,
}
# Fields of one type wherever they stand. Fields that are not here may hold anything: the model's format decides.
_TYPES: Final[Mapping[str, Schema]] = {
    **_each(_TEXT, "role", "type", "name", "namespace", "description", "arguments", "call_id", "tool_call_id", "mode"),
    **_each(_TEXT, "verbosity", "instructions", "signature", "tool_use_id"),
    **_each(_FLAG, "strict", "parallel_tool_calls", "ignore_eos", "return_token_ids", "is_error"),
    **_each(_FLAG, "disable_parallel_tool_use"),
    **_each(_NUMBER, "temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"),
    **_each(_NUMBER, "budget_tokens"),
    **_each(_WHOLE, "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "top_k", "priority"),
    **_each(_WHOLE, "top_logprobs"),
    **_each(_OBJECT, "parameters", "schema", "input_schema", "logit_bias", "chat_template_kwargs", "heptagram"),
    **_each(_list(_TEXT), "stop_sequences", "include"),
    "stop": _any(_TEXT, _list(_TEXT)),
    "stop_token_ids": _list(_WHOLE),
    **_each(_any(_TEXT, _WHOLE), "reasoning_effort", "effort"),
}
# Where a list of objects or an object stands, a text may stand too.
_OR_TEXT: Final = frozenset({"content", "input", "output", "system", "tool_choice"})


def schema_of(table: Table, required: tuple[str, ...], types: Mapping[str, Schema]) -> Schema:
    """One body. ``types``: what this API alone has. Unknown fields are ignored, or refused by ``--unknown-fields``."""
    known = {**_TYPES, **types}
    passed = _properties(table.passed, known)
    checked = {name: _checked(check) for name, check in table.checked.items()}
    present = {name: _present(passed[name]) for name in required}
    return {"type": "object", "properties": {**passed, **checked, **present}, "required": list(required)}


def _properties(shape: Shape, types: Mapping[str, Schema]) -> dict[str, Schema]:
    return {name: _nullable(_field(name, inner, types)) for name, inner in shape.items()}


def _field(name: str, shape: Shape | Each | None, types: Mapping[str, Schema]) -> Schema:
    if shape is None:
        return types.get(name, {})
    inner = shape.shape if isinstance(shape, Each) else shape
    schema: Schema = {"type": "object", "properties": _properties(inner, types)}
    if isinstance(shape, Each):
        schema = _list(schema)
    return _any(_TEXT, schema) if name in _OR_TEXT else schema


def _checked(check: Check) -> Schema:
    if not isinstance(check, Only):
        return _nullable(_CHECKS[check])
    values: list[Any] = [None]
    for value in check.neutral:
        if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values):
            values.append(value)
    return {"enum": values, "description": f"Nothing else is supported; {check.advice}."}


def _nullable(schema: Schema) -> Schema:
    """``null`` counts as absent."""
    return _any(schema, {"type": "null"}) if schema else schema


def _present(schema: Schema) -> Schema:
    """Takes :func:`_nullable` back."""
    present: Schema = schema["anyOf"][0]
    return present


_PROMPT: Final = _any(_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 32})
BODIES: Final[Mapping[str, Schema]] = {
    "/v1/chat/completions": schema_of(CHAT, ("messages",), {"logprobs": _FLAG, "tool_choice": _any(_TEXT, _OBJECT)}),
    "/v1/completions": schema_of(COMPLETIONS, ("prompt",), {"prompt": _PROMPT, "logprobs": _WHOLE}),
    "/v1/responses": schema_of(RESPONSES, ("input",), {}),
    "/v1/messages": schema_of(MESSAGES, ("max_tokens", "messages"), {"input": _OBJECT}),
    "/v1/messages/count_tokens": schema_of(MESSAGES, ("messages",), {"input": _OBJECT}),
}

_HELLO: Final[Schema] = {"messages": [{"role": "user", "content": "Hello"}]}
# A request to each path that every model answers.
EXAMPLES: Final[Mapping[str, Schema]] = {
    "/v1/chat/completions": _HELLO,
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {**_HELLO, "max_tokens": 64},
    "/v1/messages/count_tokens": _HELLO,
}
