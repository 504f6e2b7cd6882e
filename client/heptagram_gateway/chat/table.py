"""Every field of a chat request that the OpenAI reference, vLLM or we have, and what becomes of it.

=============================  =========================================================================================
passed on                      The backend honours or refuses them by name (``PASSED``).
accepted, no meaning here      ``user``, ``safety_identifier``, ``prompt_cache_key``, ``prompt_cache_retention``,
                               ``metadata``, ``request_id``; of ``store``, ``service_tier`` and the like only the value
                               that asks for nothing.
read here                      ``model``, ``stream``, ``stream_options``.
known, 400                     What would change the answer and is not there: the rest of ``CHECKED``.
=============================  =========================================================================================

Defaults are the backend's and differ from OpenAI's in one place: without ``temperature`` an answer is greedy (0; OpenAI
has 1). ``top_p`` is 1 as there. A sampled answer can be had again with the ``seed`` that was sent; one that the engine
made up is not told. Choice ``i`` of ``n`` is what ``seed + i`` gives alone. ``system_fingerprint`` names the model and
version that answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heptagram_gateway.fields import Check, Each, Shape, Table, flag, mapping, only, text

_FUNCTION: Final[Shape] = dict.fromkeys(("name", "description", "parameters", "strict", "namespace"))
_CALL: Final[Shape] = {
    **dict.fromkeys(("id", "type", "index", "namespace", "custom")),
    "function": dict.fromkeys(("name", "arguments", "namespace")),
}
_PART: Final[Shape] = dict.fromkeys(
    ("type", "text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url")
)
_MESSAGE: Final[Shape] = {
    **dict.fromkeys(
        ("role", "name", "refusal", "audio", "annotations", "function_call", "reasoning", "reasoning_content")
    ),
    "tool_call_id": None,
    "content": Each(_PART),
    "tool_calls": Each(_CALL),
}
_SCHEMA: Final[Shape] = dict.fromkeys(("name", "description", "schema", "strict"))

PASSED: Final[Shape] = {
    "messages": Each(_MESSAGE),
    "tools": Each({"type": None, "namespace": None, "custom": None, "function": _FUNCTION}),
    "response_format": {"type": None, "json_schema": _SCHEMA},
    # OpenAI's
    **dict.fromkeys(("tool_choice", "parallel_tool_calls", "functions", "function_call")),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "stop", "n", "seed", "temperature", "top_p")),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs")),
    **dict.fromkeys(("reasoning_effort", "verbosity", "modalities", "audio", "prediction", "web_search_options")),
    # vLLM's
    **dict.fromkeys(("top_k", "min_p", "repetition_penalty", "ignore_eos", "stop_token_ids", "return_token_ids")),
    **dict.fromkeys(("chat_template_kwargs", "priority")),
    "heptagram": None,
}

_FORMAT: Final = "write `response_format`"
_EFFORT: Final = "write `reasoning_effort` or `chat_template_kwargs`"

SAMPLING_EXTRAS: Final[Mapping[str, Check]] = {
    "best_of": only(1, advice="`n` answers are all given; leave it out"),
    "use_beam_search": only(False),
    "length_penalty": only(1, 1.0),
    "min_tokens": only(0, advice="use `ignore_eos`, or leave it out"),
    "include_stop_str_in_output": only(False, advice="a stop string is never sent; leave it out"),
    "skip_special_tokens": only(True, advice="control tokens have no text here; leave it out"),
    "spaces_between_special_tokens": flag,  # there are none
    "truncate_prompt_tokens": only(advice="prompts are never cut; shorten the text"),
    "prompt_logprobs": only(),
    "return_tokens_as_token_ids": only(False, advice="use `return_token_ids`"),
    "allowed_token_ids": only([]),
    "bad_words": only([]),
    "logits_processors": only([]),
    "guided_json": only(advice=_FORMAT),
    "guided_regex": only(advice=_FORMAT),
    "guided_choice": only(advice=_FORMAT),
    "guided_grammar": only(advice=_FORMAT),
    "structured_outputs": only(advice=_FORMAT),
    "mm_processor_kwargs": only({}),
    "kv_transfer_params": only({}),
    "cache_salt": only(),
    "lora_name": only(),
    "vllm_xargs": only({}),
}
HARMLESS: Final[Mapping[str, Check]] = {
    "model": text,
    "stream": flag,
    "user": text,
    "safety_identifier": text,
    "prompt_cache_key": text,
    "prompt_cache_retention": text,
    "prompt_cache_options": mapping,
    "request_id": text,
    "metadata": mapping,
    "store": only(False, advice="answers are not kept; leave it out or send false"),
    "service_tier": only("auto", "default", advice='send "auto", or leave it out'),
}

CHAT: Final = Table(
    PASSED,
    {
        **HARMLESS,
        "stream_options": mapping,
        **SAMPLING_EXTRAS,
        "moderation": only(),
        "echo": only(False),
        "add_generation_prompt": only(True),
        "continue_final_message": only(False),
        "add_special_tokens": only(False),
        "documents": only([]),
        "chat_template": only(),
        "include_reasoning": only(True, advice="reasoning is always told apart; leave it out"),
        "thinking": only(advice=_EFFORT),
        "enable_thinking": only(advice=_EFFORT),
        "thinking_budget": only(advice=_EFFORT),
        "reasoning": only(advice=_EFFORT),
    },
)
