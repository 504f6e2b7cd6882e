"""Every field of a Messages request that the Anthropic reference or we have, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heptagram_gateway.fields import Check, Each, Shape, Table, flag, mapping, only, text

# Chat's fields that the reference of this API lacks and that are taken all the same, under the same names.
EXTRAS: Final = (
    *("seed", "logit_bias", "frequency_penalty", "presence_penalty", "min_p", "repetition_penalty"),
    *("ignore_eos", "stop_token_ids", "chat_template_kwargs", "priority", "heptagram"),
)
# Those that go to the engine as they are.
SAME: Final = ("max_tokens", "temperature", "top_p", "top_k", *EXTRAS)

# ``cache_control`` marks a prefix to keep; the engine keeps prefixes without marks.
_TEXT: Final[Shape] = dict.fromkeys(("type", "text", "cache_control", "citations"))
_BLOCK: Final[Shape] = {
    **_TEXT,
    **dict.fromkeys(("thinking", "signature", "data")),
    **dict.fromkeys(("id", "name", "input", "caller", "toolset_name")),
    **dict.fromkeys(("tool_use_id", "is_error", "source", "title", "context")),
    "content": Each(_TEXT),
}
_TOOL: Final[Shape] = {
    **dict.fromkeys(("type", "name", "description", "input_schema", "strict", "cache_control")),
    **dict.fromkeys(("eager_input_streaming", "defer_loading", "allowed_callers", "input_examples")),
}

PASSED: Final[Shape] = {
    **dict.fromkeys(SAME),
    "messages": Each({"role": None, "content": Each(_BLOCK)}),
    "system": Each(_TEXT),
    "tools": Each(_TOOL),
    "tool_choice": dict.fromkeys(("type", "name", "disable_parallel_tool_use")),
    "stop_sequences": None,
    "thinking": dict.fromkeys(("type", "budget_tokens", "display")),
    "output_config": {"effort": None, "format": dict.fromkeys(("type", "schema"))},
}

# It tells Anthropic's clients to go on without a conversation that is kept on the server; else they would not.
_NO_THREAD: Final = "thread_unsupported_request"

_CHECKED: Final[Mapping[str, Check]] = {
    "model": text,
    "stream": flag,
    "metadata": mapping,
    "cache_control": mapping,
    "service_tier": only("auto", "standard_only", advice='send "auto", or leave it out'),
    "speed": only("standard"),
    "user_profile_id": text,
    "workspace_id": text,
    "inference_geo": only(),
    "container": only(),
    "thread": only(advice="send the whole conversation, without it", code=_NO_THREAD),
    "compaction": only(advice="leave earlier messages out yourself"),
    "billing_policy": only({"type": "billing_policy", "bill_to": "self"}),
    "fallback_credit_token": only(),
    "diagnostics": only(),
    "context_management": only({}, {"edits": []}, advice="nothing is taken out of a conversation here; leave it out"),
    "mcp_servers": only([], advice="no tools are run here; declare functions and run them yourself"),
    "output_format": only(advice="write `output_config.format`"),
    "fallbacks": only([]),
}

MESSAGES: Final = Table(PASSED, _CHECKED)
