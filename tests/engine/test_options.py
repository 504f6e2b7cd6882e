"""Options of the scheduler and the cache in release.yaml: what is derived, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions


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
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseError, match=f"engine.{message}"):
        EngineOptions(**options)
