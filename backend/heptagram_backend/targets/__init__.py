"""Target models by device and architecture; each is imported when it is used."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions

if TYPE_CHECKING:
    from heptagram_backend.targets.base import Target

_TRANSFORMERS: Final = "heptagram_backend.targets.transformers_target:load"
TARGETS: Final[dict[str, dict[str, str]]] = {
    "cpu": {
        "deepseek_v4": "heptagram_backend.targets.deepseek_v4:load",
        "llama": _TRANSFORMERS,
        "qwen2": _TRANSFORMERS,
        "qwen3": _TRANSFORMERS,
    },
}
"""Loaders by the device that they run on and the ``model_type`` in the checkpoint's ``config.json``."""


def load_target(options: EngineOptions, checkpoint: Path) -> Target:
    """Load the target for the device of ``options`` and the architecture of a checkpoint folder.

    Raises:
        ReleaseError: the checkpoint or an option does not fit; the message names it.
    """
    if options.device not in TARGETS:
        raise ReleaseError(f"engine.device: {options.device!r}; targets run on {', '.join(sorted(TARGETS))}")
    known, kind = TARGETS[options.device], _model_type(checkpoint)
    if kind not in known:
        raise ReleaseError(
            f"checkpoint: {checkpoint} has the model type {kind!r}; on {options.device} there are targets for "
            f"{', '.join(sorted(known))}"
        )
    module, _, loader = known[kind].partition(":")
    return cast("Target", getattr(import_module(module), loader)(options, checkpoint))


def _model_type(checkpoint: Path) -> str:
    path = checkpoint / "config.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["model_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"checkpoint: {path} names no model_type ({type(error).__name__}: {error})") from error
