from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file

from heptagram_backend.errors import RolloutError
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.rollout.memory import check_fits, model_bytes, needed_bytes, processes_bytes

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
    with pytest.raises(RolloutError, match=r"needs about 0\.7 GiB and 0\.5 GiB are free"):
        check_fits(release(), checkpoint, free=1 << 29)


def test_a_drafter_counts(checkpoint: Path) -> None:
    alone = needed_bytes(release(), checkpoint)
    (checkpoint / "drafter").mkdir()
    save_file({"d": torch.zeros(50)}, checkpoint / "drafter" / "model.safetensors")
    assert needed_bytes(release(drafter="drafter"), checkpoint) - alone == 50 * 2


def test_running_processes_say_what_they_take_beside_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path
) -> None:
    root = tmp_path / "repository"

    class Running:
        def __init__(self, path: str, private: int) -> None:
            self.path = path
            self.private = private

        def status(self) -> str:
            return psutil.STATUS_SLEEPING

        def cmdline(self) -> list[str]:
            return ["/x/triton_python_backend_stub", f"{self.path}/model.py", "prefix"]

        def memory_full_info(self) -> Any:
            if not self.private:
                raise psutil.AccessDenied
            return SimpleNamespace(uss=self.private)

    processes = [
        Running(f"{root}/generate/1", 3 << 30),
        Running(f"{root}/preprocess/1", 100),
        Running(f"{root}/generate/2", 2 << 30),
        Running(f"{root}/preprocess/2", 0),  # another user's
        Running(f"{root}/generate/3", 9 << 30),  # not of these versions
        Running(f"{root}/relay/1", 7),
        Running("/elsewhere/generate/1", 9 << 30),
    ]
    monkeypatch.setattr(psutil, "process_iter", lambda: processes)
    assert processes_bytes(root, {1: 1 << 30, 2: 1 << 30}) == (2 << 30) + 100
    assert processes_bytes(root, {}) == 0
    more = needed_bytes(release(), checkpoint, processes=5 << 30)
    assert more - model_bytes(release(), checkpoint) == 5 << 30
    assert needed_bytes(release(), checkpoint, processes=1) == needed_bytes(release(), checkpoint)
