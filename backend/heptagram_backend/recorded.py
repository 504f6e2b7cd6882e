"""What a release records of the world that it was written in, and the comparison of both when it is loaded.

Content, vocabulary, width and layout are compared exactly, for a version with other ones would answer wrongly without
a word. Packages are compared by their series, the numbers in which they promise to change nothing on purpose: ``2`` of
torch 2.13, ``0.2`` of xgrammar 0.2.7. Another series is refused; within it a warning says that bits may differ, since
an update of the machine must not take the version away that a rollback goes to. Of Heptagram itself everything that a
version relies on is compared by itself, so its number only warns.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from heptagram_backend.checkpoint import EMBEDDED_PREFIX, adapter_folder, shipped_file
from heptagram_backend.content import check_content, content_files, content_hash
from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import Release

_SELF: Final = "heptagram"
_PACKAGES: Final = (_SELF, "torch", "transformers", "xgrammar")


def recorded_checkpoint(checkpoint: str, folder: Path) -> dict[str, Any]:
    """Values of ``release.yaml`` for a checkpoint that is resolved to ``folder``, but for its vocabulary."""
    return {"checkpoint_hash": content_hash(_source(checkpoint)), "vocabulary_width": _width(folder)}


def recorded_adapter(adapter: str) -> dict[str, Any]:
    """The same for an adapter."""
    return {"adapter_hash": content_hash(content_files(adapter_folder(adapter)))}


def recorded_drafter(drafter: str | None, folder: Path) -> dict[str, Any]:
    """The same for the drafter of a checkpoint in ``folder``."""
    return {"drafter_hash": content_hash(content_files(folder / drafter)) if drafter else None}


def installed_versions() -> dict[str, str]:
    """Versions of the packages that an engine needs, as far as they are there."""
    return {name: version for name in _PACKAGES if (version := _installed(name)) is not None}


def series(version: str) -> str:
    """The first number of a version, the first two where it is 0."""
    numbers = version.split("+")[0].split(".")
    return ".".join(numbers[: 2 if numbers[0] == "0" else 1])


def check_recorded(release: Release, folder: Path, *, whole: bool = False) -> None:
    """Compare checkpoint, drafter and adapter with what ``release`` records.

    Args:
        release: what was written.
        folder: what its checkpoint is resolved to.
        whole: read every byte instead of samples.

    Raises:
        ReleaseError: something is another one; the message names both.
    """
    if release.checkpoint_hash:
        check_content("checkpoint", release.checkpoint_hash, _source(release.checkpoint), whole=whole)
    if release.drafter_hash and release.engine.drafter:
        drafter = content_files(folder / release.engine.drafter)
        check_content("engine.drafter", release.drafter_hash, drafter, whole=whole)
    if release.adapter_hash and release.adapter:
        adapter = content_files(adapter_folder(release.adapter))
        check_content("adapter", release.adapter_hash, adapter, whole=whole)


def check_width(recorded: int | None, width: int) -> None:
    """Raises ReleaseError where the logits of a model are ``width`` wide and others were recorded."""
    if recorded not in (None, width):
        raise ReleaseError(f"vocabulary_width: the release was written for {recorded}, but the logits are {width} wide")


def check_versions(recorded: Mapping[str, str]) -> list[str]:
    """Compare installed packages with ``recorded`` ones; returns warnings.

    Raises:
        ReleaseError: one is of another series.
    """
    warnings = []
    for package, version in recorded.items():
        found = _installed(package)
        if found is not None and found.split("+")[0] == version.split("+")[0]:
            continue
        said = f"versions.{package}: the release was written beside {version}, installed is {found or 'none'}"
        if found is not None and package != _SELF and series(found) != series(version):
            raise ReleaseError(f"{said}; install {package} {version}, or write the release anew")
        warnings.append(said)
    return warnings


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _source(checkpoint: str) -> list[Path]:
    """What a checkpoint is made of; how it is converted depends on installed packages."""
    if checkpoint.startswith(EMBEDDED_PREFIX):
        return content_files(shipped_file(checkpoint.removeprefix(EMBEDDED_PREFIX)))
    return content_files(Path(checkpoint).expanduser().absolute())


def _width(folder: Path) -> int | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width = config.get("text_config", config).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None  # the engine says what is wrong with it
    return width if isinstance(width, int) else None
