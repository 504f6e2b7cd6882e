"""Model repositories: where the project's own is, what its releases say, and copies of it with other values."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

import heptagram_backend
from heptagram_backend.cache import cache_dir, locked, published
from heptagram_backend.errors import LaunchError
from heptagram_backend.recorded import installed_versions, series
from heptagram_backend.release import FILE_NAME, Release
from heptagram_wire import tensors as names

_NAME = "model_repository"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values that replace those of ``release.yaml``: top-level ones and, in ``engine``, the engine's."""

    release: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def adapter(self) -> str | None:
        return self.release.get("adapter")

    def __bool__(self) -> bool:
        return bool(self.release or self.engine)


def project_repository() -> Path:
    """The repository that comes with the project: inside the installed package, or beside it in a checkout.

    Raises:
        LaunchError: there is none.
    """
    package = Path(heptagram_backend.__file__).parent
    for folder in (package / _NAME, package.parents[1] / _NAME):
        if folder.is_dir():
            return folder
    raise LaunchError(f"no {_NAME} in {package} or in a checkout around it: install heptagram again")


def releases_of(repository: Path) -> dict[Path, Release]:
    """Each ``release.yaml`` of a repository, parsed, by its path.

    Raises:
        ReleaseError: one of them is wrong.
    """
    paths = sorted(repository.glob(f"*/*/{FILE_NAME}"))
    return {path: Release.load(path.parent) for path in paths}


def write_repository(source: Path, overrides: Overrides) -> Path:
    """A copy of ``source`` in the cache, with ``overrides`` in each of its ``release.yaml`` files.

    The same source, overrides and series of packages give the same folder. It is written once, so what was changed in
    it since, by promoting a version for example, is kept.

    Raises:
        ReleaseError: the values do not make a valid release.
    """
    target = cache_dir() / "repositories" / _folder_name(source, overrides)
    with locked(target):
        if not target.exists():
            with published(target) as folder:
                shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
                for path in folder.glob(f"*/*/{FILE_NAME}"):
                    rewrite_release(path.parent, overrides, by="heptagram serve")
                releases_of(folder)
    return target


def _folder_name(source: Path, overrides: Overrides) -> str:
    versions = {package: series(version) for package, version in installed_versions().items()}
    values = [overrides.release, overrides.engine, versions]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode())
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"\0{path.relative_to(source)}\0".encode() + path.read_bytes())
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(overrides.release.get("served_model_name", "default")))
    return f"{name}-{digest.hexdigest()[:12]}"


def overridden(version_dir: Path, overrides: Overrides) -> dict[str, Any]:
    """The values of a version's ``release.yaml`` with ``overrides``, as written for what is installed now."""
    data = _read(version_dir)
    installed: dict[str, Any] = {"versions": installed_versions()}
    if "k7_layout" in data:  # of generate alone
        installed["k7_layout"] = _read(project_repository() / names.GENERATE / "1")["k7_layout"]
    engine = {**(data.get("engine") or {}), **overrides.engine}
    return {**data, **installed, **overrides.release, "engine": engine}


def rewrite_release(version_dir: Path, overrides: Overrides, *, by: str) -> None:
    """Put ``overrides`` into a version's ``release.yaml``."""
    values = overridden(version_dir, overrides) | {"created_at": datetime.now(UTC).isoformat(timespec="seconds")}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    (version_dir / FILE_NAME).write_text(f"# Written by `{by}`.\n{text}", encoding="utf-8")


def _read(version_dir: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((version_dir / FILE_NAME).read_text(encoding="utf-8"))
    return data
