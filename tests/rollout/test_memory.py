from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from heptagram_backend.errors import RolloutError
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.rollout.memory import check_fits, needed_bytes

CONFIG = {"num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 3, "num_key_value_heads": 2}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file({"a": torch.zeros(10, 20), "b": torch.zeros(30, dtype=torch.float16)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def release(**engine: Any) -> Release:
    return Release("m", "c", "chatml_json", engine=EngineOptions(**engine))


def test_weights_and_cache_are_counted(checkpoint: Path) -> None:
    a = needed_bytes(release(dtype="bfloat16", max_num_seqs=2, max_model_len=100), checkpoint)
    b = needed_bytes(release(dtype="bfloat16", max_num_seqs=3, max_model_len=100), checkpoint)
    assert b - a == 2 * 3 * 2 * 16 * 2 * 100  # keys and values, layers, heads, width, bytes, rows
    c = needed_bytes(release(dtype="float32", max_num_seqs=2, max_model_len=100), checkpoint)
    assert c - a == 230 * 2 + 2 * 3 * 2 * 16 * 2 * 200
    blocks = needed_bytes(release(kv_cache_blocks=10, block_size=32), checkpoint)
    assert needed_bytes(release(kv_cache_blocks=11, block_size=32), checkpoint) - blocks == 2 * 3 * 2 * 16 * 2 * 32
    assert needed_bytes(release(kv_cache_memory=12345), checkpoint) - 12345 == a - 2 * 3 * 2 * 16 * 2 * 200


def test_what_does_not_fit_is_refused_with_both_numbers(checkpoint: Path) -> None:
    check_fits(release(), checkpoint, free=4 << 30)
    with pytest.raises(RolloutError, match=r"needs about 0\.9 GiB and 0\.5 GiB are free"):
        check_fits(release(), checkpoint, free=1 << 29)
