"""Every field of a Responses request that the OpenAI reference or we have, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heptagram_gateway.chat.table import HARMLESS
from heptagram_gateway.fields import Check, Each, Shape, Table, flag, mapping, number, only

# Chat's fields that the reference of this API lacks and that are taken all the same, under the same names.
EXTRAS: Final = (
    *("seed", "stop", "logit_bias", "frequency_penalty", "presence_penalty"),
    *("top_k", "min_p", "repetition_penalty", "ignore_eos", "stop_token_ids"),
    *("chat_template_kwargs", "priority", "heptagram"),
)
# Those that go to the engine as they are.
SAME: Final = ("temperature", "top_p", "top_logprobs", "parallel_tool_calls", "tool_choice", *EXTRAS)

_PART: Final[Shape] = {
    **dict.fromkeys(("type", "text", "refusal", "annotations", "logprobs", "prompt_cache_breakpoint")),
    **dict.fromkeys(("image_url", "file_id", "detail", "input_audio", "file_data", "file_url", "filename")),
}
_ITEM: Final[Shape] = {
    **dict.fromkeys(("type", "id", "status", "role", "phase", "call_id", "name", "namespace", "arguments", "caller")),
    "encrypted_content": None,
    "content": Each(_PART),
    "summary": Each(_PART),
    "output": Each(_PART),
}
_FUNCTION: Final[Shape] = {
    **dict.fromkeys(("type", "name", "description", "parameters", "strict")),
    **dict.fromkeys(("async", "defer_loading", "allowed_callers", "output_schema")),
}
_CHOICE: Final[Shape] = dict.fromkeys(("type", "name", "namespace", "mode", "server_label"))
_FORMAT: Final[Shape] = dict.fromkeys(("type", "name", "schema", "strict", "description"))
_REASONING: Final[Shape] = dict.fromkeys(("effort", "summary", "generate_summary", "context", "mode"))

PASSED: Final[Shape] = {
    **dict.fromkeys(("instructions", "max_output_tokens")),
    **dict.fromkeys(SAME),
    "input": Each(_ITEM),
    "tools": Each({**_FUNCTION, "tools": Each(_FUNCTION)}),
    "tool_choice": {**_CHOICE, "tools": Each(_CHOICE)},
    "text": {"format": _FORMAT, "verbosity": None},
    "reasoning": _REASONING,
}

_NO_STATE: Final = "no answer is kept here; send the whole conversation as `input`"
_CHECKED: Final[Mapping[str, Check]] = {
    **HARMLESS,
    "store": flag,  # its default is true, so a client that says it asks for nothing more; the answer says false
    "previous_response_id": only(advice=_NO_STATE),
    "conversation": only(advice=_NO_STATE),
    "prompt": only(advice="no prompts are kept here; send `instructions` and `input`"),
    "background": only(False, advice="nothing runs in the background here; leave it out"),
    "background_options": only({}),
    "truncation": only("disabled", advice="input is never cut; shorten it"),
    "context_management": only([]),
    "max_tool_calls": number,  # it counts calls of tools that are not here
    "stream_options": mapping,
    "moderation": only(),
    "image": only({}),
    "access_programs": only({}),
    "return_token_ids": only(False),
}

RESPONSES: Final = Table({**PASSED, "include": None}, _CHECKED)
