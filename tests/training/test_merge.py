"""An adapter in the weights of the checkpoint it was trained on, and of no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heptagram_backend.adapter import DOWN, ROWS, UP, WEIGHTS_FILE, AdapterConfig
from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import ReleaseError
from heptagram_backend.merge import EMBEDDING, merge, weights_digest
from tests.targets.tiny import save_tiny

LAYER = "model.layers.0.mlp.down_proj"
TOKENIZER = {
    "added_tokens": [{"id": 1, "content": "<old>", "special": True}],
    "model": {"vocab": {"a": 0, "<old>": 1}},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = save_tiny(tmp_path / "base", "llama")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


def adapter_of(checkpoint: Path, folder: Path, change: Callable[[dict[str, Tensor]], object] = dict) -> Path:
    """An adapter of one layer and one token; ``change`` alters its tensors."""
    folder.mkdir()
    drawn = torch.Generator().manual_seed(0)
    tensors = {
        f"{LAYER}.{DOWN}": torch.randn(4, 96, generator=drawn),
        f"{LAYER}.{UP}": torch.randn(64, 4, generator=drawn),
        ROWS: torch.randn(1, 64, generator=drawn),
    }
    change(tensors)
    save_file(tensors, folder / WEIGHTS_FILE)
    AdapterConfig(weights_digest(checkpoint), "chatml_dsml", 4, 2.0, {"<old>": "<new>"}, (1,)).save(folder)
    return folder


def test_only_what_is_adapted_changes(checkpoint: Path, tmp_path: Path) -> None:
    adapter = adapter_of(checkpoint, tmp_path / "adapter")
    folder = resolve(str(checkpoint), str(adapter))
    before, after = load_file(checkpoint / "model.safetensors"), load_file(folder / "model.safetensors")
    tensors = load_file(adapter / WEIGHTS_FILE)
    assert {name for name in before if not before[name].equal(after[name])} == {f"{LAYER}.weight", EMBEDDING}
    wanted = before[f"{LAYER}.weight"] + 2 * tensors[f"{LAYER}.{UP}"] @ tensors[f"{LAYER}.{DOWN}"]
    assert after[f"{LAYER}.weight"].equal(wanted)
    assert after[EMBEDDING][1].equal(tensors[ROWS][0])
    assert after[EMBEDDING][2].equal(before[EMBEDDING][2])
    written = json.loads((folder / "tokenizer.json").read_text())
    assert written["model"]["vocab"] == {"a": 0, "<new>": 1}
    assert (folder / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()
    assert resolve(str(checkpoint), str(adapter)) == folder


def test_another_base_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    adapter = adapter_of(checkpoint, tmp_path / "adapter")
    other = save_tiny(tmp_path / "other", "llama", seed=1)
    (other / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    with pytest.raises(ReleaseError, match=r"cannot be adapted: adapter .* was trained on weights sha256"):
        resolve(str(other), str(adapter))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.update({f"{LAYER}.{UP}": torch.zeros(63, 4)}), "has weights .64, 96., not those"),
        (lambda tensors: tensors.update({ROWS: torch.zeros(2, 64)}), "rows .2, 64. do not fit 1 tokens"),
        (lambda tensors: tensors.update({"model.layers.9.mlp.up_proj.up": torch.zeros(1)}), "fits no weight"),
        (lambda tensors: tensors.pop(f"{LAYER}.{UP}"), "fits no weight"),
    ],
)
def test_what_does_not_fit_is_refused(
    checkpoint: Path, tmp_path: Path, change: Callable[[dict[str, Tensor]], object], says: str
) -> None:
    adapter = adapter_of(checkpoint, tmp_path / "adapter", change)
    (tmp_path / "merged").mkdir()
    with pytest.raises(ReleaseError, match=says):
        merge(checkpoint, adapter, tmp_path / "merged")


def test_an_adapter_that_is_not_there_is_named(checkpoint: Path, tmp_path: Path) -> None:
    for adapter in (str(tmp_path / "nowhere"), "shipped:nothing"):
        with pytest.raises(ReleaseError, match=r"there is no .*adapter\.json"):
            resolve(str(checkpoint), adapter)


def test_the_digest_is_that_of_the_weights_however_they_are_filed(checkpoint: Path) -> None:
    digest = weights_digest(checkpoint)
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    first, *rest = sorted(weights)
    save_file({first: weights[first]}, checkpoint / "model-2.safetensors", metadata={"format": "pt", "x": "y"})
    save_file({name: weights[name] for name in rest}, checkpoint / "model-1.safetensors")
    assert weights_digest(checkpoint) == digest
    weights[first][0] += 1
    save_file({first: weights[first]}, checkpoint / "model-2.safetensors")
    assert weights_digest(checkpoint) != digest
