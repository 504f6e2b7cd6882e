"""Answers as JSON Schema, closed: what is not here is never in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_OBJECT: Final[Schema] = {"type": "object"}
_NULL: Final[Schema] = {"type": "null"}


def _one(*values: Any) -> Schema:
    return {"enum": list(values)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(fields: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    properties = {**fields, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


_REASON: Final = _one("stop", "length", "tool_calls")
_USAGE: Final = _object(dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _COUNT))
_METRICS: Final = _object({"speculative_decoding": {"type": "object", "additionalProperties": True}})
_FRAME: Final = {"id": _TEXT, "created": _COUNT, "model": _TEXT, "system_fingerprint": _TEXT}
_LOGPROBS: Final[Schema] = {"type": ["object", "null"]}  # of the shape that OpenAI's reference has
_CALL: Final = _object(
    {"id": _TEXT, "type": _one("function"), "function": _object({"name": _TEXT, "arguments": _TEXT})}
)
_ASSISTANT: Final = _object(
    {"role": _one("assistant"), "content": _TEXT_OR_NULL, "refusal": _NULL},
    {"tool_calls": _list(_CALL), "reasoning_content": _TEXT, "reasoning": _TEXT},
)
_CHOICE: Final = _object(
    {"index": _COUNT, "message": _ASSISTANT, "logprobs": _LOGPROBS, "finish_reason": _REASON},
    {"token_ids": _list(_COUNT)},
)
_TEXT_CHOICE: Final = _object({"index": _COUNT, "text": _TEXT, "logprobs": _LOGPROBS, "finish_reason": _REASON})
_CARD: Final = _object(
    {
        "id": _TEXT,
        "object": _one("model"),
        "created": _COUNT,
        "owned_by": _one("heptagram"),
        "versions": _list(_TEXT),
    }
)
_TOLD: Final = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), _COUNT
)

ANSWERS: Final[Mapping[str, Schema]] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": _one("invalid_request_error", "rate_limit_error", "server_error"),
                    "param": _TEXT_OR_NULL,
                    "code": _TEXT_OR_NULL,
                }
            )
        }
    ),
    "AnthropicError": _object(
        {
            "type": _one("error"),
            "error": _object({"type": _TEXT, "message": _TEXT, "details": _object({"error_code": _TEXT})}),
            "request_id": _TEXT,
        }
    ),
    "ChatCompletion": _object(
        {
            **_FRAME,
            "object": _one("chat.completion"),
            "choices": _list(_CHOICE),
            "usage": _USAGE,
            "metrics": _METRICS,
        }
    ),
    "TextCompletion": _object(
        {**_FRAME, "object": _one("text_completion"), "choices": _list(_TEXT_CHOICE), "usage": _USAGE}
    ),
    # The answer repeats what was asked for, so its fields are not all of fixed types.
    "Response": {
        "type": "object",
        "properties": {
            "id": _TEXT,
            "object": _one("response"),
            "created_at": _COUNT,
            "status": _one("completed", "incomplete"),
            "model": _TEXT,
            "output": _list({**_OBJECT, "required": ["type", "id", "status"]}),
            "usage": _OBJECT,
            "error": _NULL,
        },
        "required": ["id", "object", "created_at", "status", "model", "output", "usage", "error"],
    },
    "Message": _object(
        {
            "id": _TEXT,
            "type": _one("message"),
            "role": _one("assistant"),
            "model": _TEXT,
            "content": _list({**_OBJECT, "required": ["type"]}),
            "stop_reason": _one("end_turn", "max_tokens", "tool_use"),
            "stop_sequence": _NULL,
            "usage": _object(_TOLD),
            "metrics": _METRICS,
        }
    ),
    "TokenCount": _object({"input_tokens": _COUNT}),
    "Model": _CARD,
    "ModelList": _object({"object": _one("list"), "data": _list(_CARD)}),
    "Live": _object({"status": _one("live")}),
    "Ready": _object({"status": _one("ready")}),
    "Status": _object(
        {
            "ready": {"type": "boolean"},
            "reason": _TEXT_OR_NULL,
            "key_required": {"type": "boolean"},
            "gateway": _object({"running": _COUNT, "limit": _COUNT}),
            "engine": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
        }
    ),
}
