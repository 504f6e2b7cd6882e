"""Target models by name; each is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions

if TYPE_CHECKING:
    from heptagram_backend.targets.base import Target

TARGETS: Final[dict[str, str]] = {
    "cpu": "heptagram_backend.targets.transformers_target:load",
}
"""Loaders by the device that they run on."""


def load_target(options: EngineOptions, checkpoint: Path) -> Target:
    """Load the target that ``options`` asks for from a checkpoint folder.

    Raises:
        ReleaseError: the checkpoint or an option does not fit; the message names it.
    """
    if options.device not in TARGETS:
        raise ReleaseError(f"engine.device: {options.device!r}; targets run on {', '.join(sorted(TARGETS))}")
    module, _, loader = TARGETS[options.device].partition(":")
    return cast("Target", getattr(import_module(module), loader)(options, checkpoint))
