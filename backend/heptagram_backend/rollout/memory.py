"""Whether a version fits beside those that are served: two of them are in memory while one is rolled out.

Weights and cache are computed. What else a pair of processes takes is read off those that run: their private memory
without weights and cache, as another pair shares libraries with them. Nothing of it is known before the first version
runs, and a fresh one may still grow; so it is never taken for less than was measured of a pair that had just loaded.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from heptagram_backend.errors import RolloutError
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.rollout.files import PAIR
from heptagram_backend.server.stubs import described

# Private memory (USS) of `preprocess` and `generate` just loaded, without weights and cache, measured on Triton 2.51
# with torch 2.13 (CPU): 494 MiB around SmolLM2's 49,152 tokens, 657 MiB around DeepSeek's 129,280.
_PROCESSES_BYTES: Final = 657 << 20
_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
_CGROUP: Final = Path("/sys/fs/cgroup")


def needed_bytes(release: Release, checkpoint: Path, *, processes: int = 0) -> int:
    """About what a version takes in memory: weights, key/value cache, processes as :func:`processes_bytes` has them."""
    return model_bytes(release, checkpoint) + max(processes, _PROCESSES_BYTES)


def model_bytes(release: Release, checkpoint: Path) -> int:
    """Weights and key/value cache."""
    size = _BYTES.get(release.engine.dtype, 4)
    drafter = [checkpoint / release.engine.drafter] if release.engine.drafter else []
    weights = sum(_weights(folder) for folder in (checkpoint, *drafter))
    return weights * size + _cache_bytes(release.engine, _text_config(checkpoint), size)


def processes_bytes(repository: Path, models: Mapping[int, int]) -> int:
    """The most that the running processes of a version take beside its model.

    Args:
        repository: what the server serves.
        models: for each version what :func:`model_bytes` says of it.
    """
    private: Counter[int] = Counter()
    for process in psutil.process_iter():
        stub = described(process)
        if stub is not None and stub.repository == repository and stub.model in PAIR and stub.version.isdecimal():
            with suppress(psutil.Error):  # it ended, or is another user's
                private[int(stub.version)] += process.memory_full_info().uss
    return max((size - models[version] for version, size in private.items() if version in models), default=0)


def free_bytes() -> int:
    """What this machine, or the control group that we run in, has left."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        return min(free, limit - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):  # no version 2 group, or "max"
        return free


def check_fits(release: Release, checkpoint: Path, *, processes: int = 0, free: int | None = None) -> None:
    """Raises RolloutError, with both numbers, where ``release`` does not fit."""
    needed, left = needed_bytes(release, checkpoint, processes=processes), free_bytes() if free is None else free
    if needed > left:
        raise RolloutError(
            f"it needs about {needed / 2**30:.1f} GiB and {left / 2**30:.1f} GiB are free: drain a version, or lower "
            "max_num_seqs, max_model_len or kv_cache_memory"
        )


def _weights(checkpoint: Path) -> int:
    """Numbers in all safetensors files, read off their headers."""
    return sum(
        math.prod(entry["shape"])
        for path in checkpoint.glob("*.safetensors")
        for name, entry in _header(path).items()
        if name != "__metadata__"
    )


def _header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as handle:
        header: dict[str, Any] = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
    return header


def _text_config(checkpoint: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    nested: dict[str, Any] = config.get("text_config", config)
    return nested


def _cache_bytes(engine: EngineOptions, config: dict[str, Any], size: int) -> int:
    if engine.kv_cache_memory is not None:
        return engine.kv_cache_memory
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    row = 2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or heads) * width * size
    rows = engine.max_num_seqs * engine.max_model_len
    if engine.kv_cache_blocks is not None:
        rows = engine.kv_cache_blocks * engine.block_size
    return int(row * rows)
