"""A program that merges an adapter into a checkpoint: ``merge.py CHECKPOINT ADAPTER FOLDER``.

It is run as a child, as ``convert.py`` is. Of the checkpoint all but what the adapter changes is copied as it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from heptagram_backend.adapter import DOWN, ROWS, UP, WEIGHTS_FILE, AdapterConfig, rename_tokens
from heptagram_backend.checkpoint import MANIFEST
from heptagram_backend.convert import program
from heptagram_backend.errors import ReleaseError

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDING: Final = "model.embed_tokens.weight"


def merge(checkpoint: Path, adapter: Path, folder: Path) -> None:
    """Write the checkpoint with the adapter in its weights to ``folder``.

    Raises:
        ReleaseError: the adapter was made for other weights, or something in it does not fit them.
    """
    from safetensors.torch import load_file, save_file

    config = AdapterConfig.load(adapter)
    if (found := weights_digest(checkpoint)) != config.base:
        raise ReleaseError(
            f"adapter {adapter}: it was trained on weights {config.base}, but those of {checkpoint} are {found}; "
            "take the checkpoint it was trained on, or train it anew with `heptagram train-adapter`"
        )
    changes = load_file(adapter / WEIGHTS_FILE)
    for path in sorted(checkpoint.iterdir()):
        if path.suffix == ".safetensors":
            weights = load_file(path)
            for name in weights:
                weights[name] = _merged(name, weights[name], changes, config)
            save_file(weights, folder / path.name, metadata={"format": "pt"})
        elif path.is_file() and path.name != MANIFEST:
            shutil.copy(path, folder / path.name)
    if changes:
        raise ReleaseError(f"adapter {adapter}: {min(changes)} fits no weight of {checkpoint}")
    rename_tokens(folder, config.control_tokens)


def _merged(name: str, weight: Tensor, changes: dict[str, Tensor], config: AdapterConfig) -> Tensor:
    """A weight with what the adapter changes in it, which is taken out of ``changes``."""
    layer = name.removesuffix(".weight")
    if f"{layer}.{UP}" in changes and f"{layer}.{DOWN}" in changes:
        up, down = changes.pop(f"{layer}.{UP}"), changes.pop(f"{layer}.{DOWN}")
        if (up.shape[0], down.shape[-1]) != weight.shape or up.shape[1:] != down.shape[:1]:
            raise ReleaseError(f"adapter: {layer} has weights {tuple(weight.shape)}, not those of its matrices")
        return (weight.float() + config.scale * up.float() @ down.float()).to(weight.dtype)
    if name == EMBEDDING and ROWS in changes:
        rows = changes.pop(ROWS)
        ids = list(config.rows)
        if rows.shape != (len(ids), weight.shape[1]):
            raise ReleaseError(f"adapter: {ROWS} {tuple(rows.shape)} do not fit {len(ids)} tokens of {name}")
        weight[ids] = rows.to(weight.dtype)
    return weight


def weights_digest(checkpoint: Path) -> str:
    """The identity of a checkpoint's weights: names, types, shapes and bytes, however they are spread over files."""
    found: dict[str, tuple[Any, Path, int]] = {}
    for path in checkpoint.glob("*.safetensors"):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        found |= {name: (entry, path, 8 + length) for name, entry in header.items() if name != "__metadata__"}
    digest = hashlib.sha256()
    for name, (entry, path, start) in sorted(found.items()):
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
        begin, end = entry["data_offsets"]
        for piece in _pieces(path, start + begin, end - begin):
            digest.update(piece)
    return "sha256:" + digest.hexdigest()


def _pieces(path: Path, start: int, length: int, size: int = 1 << 24) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        for done in range(0, length, size):
            yield file.read(min(size, length - done))


if __name__ == "__main__":
    sys.exit(program(merge))
