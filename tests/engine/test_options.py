"""``release.yaml``: what is derived, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions, Release


def test_a_forward_has_room_for_every_sequence_and_64_rows_of_prompts() -> None:
    assert EngineOptions().batched_tokens == 128
    assert EngineOptions(max_num_seqs=16).batched_tokens == 192
    assert EngineOptions(max_num_batched_tokens=512).batched_tokens == 512


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_num_batched_tokens": 64},
            "max_num_batched_tokens: must be a multiple of 8 and exceed 8 rows a sequence",
        ),
        ({"max_num_batched_tokens": 100}, "max_num_batched_tokens: must be a multiple of 8"),
        ({"long_prefill_token_threshold": 0}, "long_prefill_token_threshold: must be at least 1"),
        ({"block_size": 0}, "block_size: must be at least 1"),
        ({"kv_cache_blocks": 0}, "kv_cache_blocks: must be at least 1"),
        ({"kv_cache_memory": -1}, "kv_cache_memory: must be at least 1"),
        ({"kv_cache_blocks": 9, "kv_cache_memory": 9}, "kv_cache_memory: the size of the cache is given by"),
        ({"max_queue_size": 0}, "max_queue_size: must be at least 1"),
        ({"max_drain_ms": 0}, "max_drain_ms: must be at least 1"),
        ({"rejection_sample_method": "loose"}, "rejection_sample_method: must be one of strict, probabilistic"),
        ({"draft_width": "narrow"}, "draft_width: must be one of auto, full"),
        ({"dspark_confidence_threshold": 1.5}, "dspark_confidence_threshold: must be 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseError, match=f"engine.{message}"):
        EngineOptions(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": {"max_queue": 4}}, "engine.max_queue is called max_queue_size now; rename it"),
        ({"engine": {"max_seqs": 4}}, "there is no engine.max_seqs; known are .*, max_num_seqs, "),
        ({"max_tokens": 4}, "there is no max_tokens; known are .*, default_max_tokens, "),
        ({"answer": {"strings": 4}}, "there is no answer.strings; known are string_tokens, array_items"),
        ({"engine": {"max_num_seqs": "8"}}, "engine.max_num_seqs: must be a whole number, not '8'"),
        ({"engine": {"threads": 2.5}}, "engine.threads: must be a whole number, not 2.5"),
        ({"engine": {"threads": True}}, "engine.threads: must be a whole number, not True"),
        ({"engine": {"kv_cache_memory": "4GiB"}}, "engine.kv_cache_memory: must be a whole number, not '4GiB'"),
        ({"engine": {"enable_prefix_caching": "false"}}, "enable_prefix_caching: must be true or false, not 'false'"),
        (
            {"engine": {"dspark_confidence_threshold": "auto"}},
            "dspark_confidence_threshold: must be a number, not 'auto'",
        ),
        ({"engine": {"dspark_confidence_threshold": True}}, "dspark_confidence_threshold: must be a number, not True"),
        ({"engine": {"dtype": None}}, "engine.dtype: must be text, not None"),
        ({"engine": [1]}, "engine: must be a mapping"),
        ({"k7_layout": 5}, "k7_layout: must be a list of lines"),
    ],
)
def test_a_release_is_refused_by_the_name_of_its_key(change: dict[str, Any], message: str) -> None:
    release = {"served_model_name": "m", "checkpoint": "folder", "format": "hermes"}
    assert Release.parse(release | {"vocabulary": None, "engine": {"kv_cache_blocks": None}}).format == "hermes"
    for number in (0, 1, 0.5):
        parsed = Release.parse(release | {"engine": {"dspark_confidence_threshold": number}})
        assert parsed.engine.dspark_confidence_threshold == number
    with pytest.raises(ReleaseError, match=f"release.yaml: .*{message}"):
        Release.parse(release | change)
    with pytest.raises(ReleaseError, match=r"release\.yaml: format is missing"):
        Release.parse({key: value for key, value in release.items() if key != "format"})
