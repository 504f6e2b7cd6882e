"""Everything of a request beside its messages, its tools and how tokens are chosen.

Checked and without meaning here are ``user``, ``metadata``, ``store``, ``service_tier``, ``safety_identifier``,
``prompt_cache_key``, ``prompt_cache_retention`` and ``stream_options`` (usage is always in ``finish``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from heptagram_backend.conversation import Conventions, ToolMarkup
from heptagram_backend.drafts import fault_of_drafts
from heptagram_backend.generation import DraftSource
from heptagram_backend.requests.fields import Fields, invalid, unsupported, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.schema import Unenforced

_INT32 = 2**31 - 1
INT64_MAX = 2**63 - 1
_TEMPLATE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TEMPLATE_TEXT = re.compile(r"[A-Za-z0-9_. -]{0,64}")
_TAKEN = """
    messages tools documents conversations chat_template add_generation_prompt tokenize continue_final_message
    return_assistant_tokens_mask bos_token eos_token unk_token pad_token sep_token cls_token mask_token raise_exception
    strftime_now self loop
"""
_RESERVED = frozenset(_TAKEN.split())


def read_max_tokens(fields: Fields) -> int | None:
    """``max_completion_tokens``, or its older name ``max_tokens``."""
    newer = fields.whole("max_completion_tokens", 1, INT64_MAX)
    older = fields.whole("max_tokens", 1, INT64_MAX)
    if newer is not None and older is not None and newer != older:
        raise invalid("max_tokens", "differs from `max_completion_tokens`; send one of them")
    return older if newer is None else newer


def read_stop(fields: Fields, limits: RequestLimits) -> tuple[str, ...]:
    """``stop``: one string or a list of them."""
    value = fields.get("stop")
    entries = [value] if isinstance(value, str) else fields.list("stop", longest=limits.stops) or []
    for index, entry in enumerate(entries):
        path = f"stop[{index}]" if isinstance(value, list) else "stop"
        if not isinstance(entry, str):
            raise wrong_type(path, "a string", entry)
        if not 1 <= len(entry) <= limits.stop:
            raise invalid(path, f"must have from 1 to {limits.stop} characters")
    return tuple(dict.fromkeys(entries))


def read_stop_token_ids(fields: Fields, limits: RequestLimits) -> tuple[int, ...]:
    entries = fields.list("stop_token_ids", longest=limits.stop_token_ids) or []
    for index, entry in enumerate(entries):
        if isinstance(entry, bool) or not isinstance(entry, int):
            raise wrong_type(f"stop_token_ids[{index}]", "a whole number", entry)
        if not 0 <= entry <= _INT32:
            raise invalid(f"stop_token_ids[{index}]", "must be a token id from 0 on")
    return tuple(dict.fromkeys(entries))


def check_rest(fields: Fields) -> None:
    """Fields that clients send and that change nothing here, and those that ask for what is not there."""
    for key in ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"):
        fields.text(key, longest=1_024)
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict | None):
        raise wrong_type("metadata", "an object", metadata)
    fields.flag("store", False)
    fields.choice("service_tier", ("auto", "default", "flex", "scale", "priority"))
    options = fields.nested("stream_options")
    if options is not None:
        options.flag("include_usage", False)
        options.flag("include_obfuscation", False)
        options.refuse_unknown()
    if fields.get("modalities") not in (None, ["text"]):
        raise unsupported("modalities", 'only ["text"] is supported')
    for key in ("audio", "prediction", "web_search_options"):
        if fields.get(key) is not None:
            raise unsupported(key, "not supported; leave it out")
    if fields.text("verbosity") not in (None, "medium"):
        raise unsupported("verbosity", "not supported; leave it out")


def read_effort(fields: Fields, conventions: Conventions) -> str | int | None:
    """``reasoning_effort``: ``none``, or a name or a number that ``conventions`` has."""
    key = "reasoning_effort"
    value = fields.get(key)
    if value in (None, "none"):
        return cast(str | None, value)
    bounds = conventions.effort_range
    if not conventions.efforts and bounds is None:
        fields.text(key)
        raise unsupported(fields.at(key), "not supported by this model; leave it out")
    if bounds is not None and not isinstance(value, str):
        return fields.whole(key, *bounds)
    return fields.choice(key, ("none", *conventions.efforts))


def read_template_kwargs(fields: Fields, limits: RequestLimits) -> Mapping[str, Any]:
    """``chat_template_kwargs``: switches of the template. Texts are short and plain, since they enter the prompt."""
    path = "chat_template_kwargs"
    value = fields.get(path)
    if not isinstance(value, dict | None):
        raise wrong_type(path, "an object", value)
    for key, entry in (value or {}).items():
        if not _TEMPLATE_NAME.fullmatch(key) or key in _RESERVED:
            raise invalid(path, "a name in it is reserved or no plain identifier; leave it out")
        plain = isinstance(entry, str) and _TEMPLATE_TEXT.fullmatch(entry)
        if not plain and not isinstance(entry, bool | int | float | None):
            raise invalid(f"{path}.{key}", "must be true, false, a number, null or a short plain word")
    if len(value or {}) > limits.template_kwargs:
        raise invalid(path, f"more than {limits.template_kwargs} entries")
    return value or {}


def read_ours(fields: Fields) -> dict[str, Any]:
    """The object ``heptagram``, as arguments of ChatRequest."""
    ours = fields.nested("heptagram")
    if ours is None:
        return {}
    options = {
        "deadline_ms": ours.whole("deadline_ms", 1, _INT32),
        "num_speculative_tokens": ours.whole("num_speculative_tokens", 0, 7),
        "drafts": _drafts(ours),
        "tool_markup": cast(ToolMarkup, ours.choice("tool_markup", ("guarded", "free")) or "guarded"),
        "unenforced": cast(Unenforced, ours.choice("unenforced", ("refuse", "validate")) or "refuse"),
    }
    ours.refuse_unknown()
    return options


def _drafts(ours: Fields) -> DraftSource | None:
    value = ours.text("drafts")
    fault = None if value is None else fault_of_drafts(value)
    if fault:
        raise invalid(ours.at("drafts"), fault)
    return value


def read_priority(fields: Fields) -> int:
    return fields.whole("priority", -_INT32, _INT32) or 0
