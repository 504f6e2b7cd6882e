"""The tensors of a checkpoint folder, read from safetensors one by one."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from heptagram_backend.errors import ReleaseError

_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"


class Weights:
    """An open checkpoint; every tensor comes as ``dtype``.

    Raises:
        ReleaseError: a file or a tensor is missing, or is not what it should be; the message names it.
    """

    def __init__(self, checkpoint: Path, dtype: torch.dtype) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        try:
            for path in _files(checkpoint):
                file = self._stack.enter_context(safe_open(path, framework="pt"))
                self._files |= dict.fromkeys(file.keys(), file)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            self._stack.close()
            raise self._fault(str(error)) from error

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor ``name``, which must have ``shape``."""
        tensor = self.find(name, *shape)
        if tensor is None:
            raise self._fault(f"there is no {name}")
        return tensor

    def find(self, name: str, *shape: int) -> Tensor | None:
        """The tensor ``name``, or ``None`` where the checkpoint has none."""
        file = self._files.get(name)
        if file is None:
            return None
        tensor: Tensor = file.get_tensor(name)
        if tensor.shape != shape or not tensor.is_floating_point():
            raise self._fault(f"{name} is {tensor.dtype} {list(tensor.shape)}, needed are numbers {list(shape)}")
        return tensor.to(self._dtype)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _fault(self, what: str) -> ReleaseError:
        return ReleaseError(f"checkpoint: {self._checkpoint}: its weights cannot be loaded ({what})")


def _files(checkpoint: Path) -> list[Path]:
    index = checkpoint / _INDEX
    if not index.is_file():
        return [checkpoint / _WHOLE]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [checkpoint / name for name in sorted(set(names))]
