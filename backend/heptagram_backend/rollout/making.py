"""A repository for a checkpoint: the project's, with other values, ready for further versions."""

from __future__ import annotations

import shutil
from pathlib import Path

from heptagram_backend.cache import locked, published
from heptagram_backend.errors import RolloutError
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.server.repository import Overrides, project_repository, releases_of, rewrite_release


def make_repository(target: Path, overrides: Overrides) -> None:
    """Write it, whole or not at all.

    Raises:
        ReleaseError: the values do not make a valid release.
    """
    with locked(target):
        if target.exists():
            raise RolloutError(f"{target} was made meanwhile")
        with published(target) as folder:
            _fill(folder, overrides)


def _fill(folder: Path, overrides: Overrides) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project_repository(), folder, dirs_exist_ok=True, ignore=ignored)
    for path in releases_of(folder):
        rewrite_release(path.parent, overrides, by="heptagram repo init")
    releases_of(folder)
    files = RolloutFiles(folder)
    files.serve(1, wanted=True)
    files.pin_beside(1)
