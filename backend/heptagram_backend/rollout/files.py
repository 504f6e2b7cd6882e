"""The files of a repository that is rolled out: versions, what is served of them, and what is current."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heptagram_backend.cache import published
from heptagram_backend.errors import RolloutError
from heptagram_backend.release import Release
from heptagram_backend.rollout.configs import FILE_NAME as CONFIG
from heptagram_backend.rollout.configs import (
    pin,
    pinned_version,
    read_config,
    serve_versions,
    served_versions,
    share,
    shares,
    write_config,
)
from heptagram_backend.server.repository import Overrides, overridden, rewrite_release
from heptagram_wire import tensors as names

PAIR: Final = (names.PREPROCESS, names.GENERATE)
ENSEMBLES: Final = (names.CHAT, names.COMPLETIONS)


class RolloutFiles:
    """One repository. Each method leaves files that Triton can load, whenever the process ends.

    Raises:
        RolloutError: ``root`` is not a repository of ours.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        for model in (*PAIR, *ENSEMBLES):
            if not (self.root / model).is_dir():
                raise RolloutError(f"{root}: has no model {model!r}; make a repository with `heptagram repo init`")

    def versions(self) -> list[int]:
        """The versions whose pair is there, ascending."""
        return sorted(set.intersection(*(self._folders(model) for model in PAIR)))

    def served(self) -> list[int]:
        """The versions that Triton loads of both models of the pair."""
        there = self.versions()
        served = (served_versions(read_config(self.root / model), there) for model in PAIR)
        return sorted(set.intersection(*map(set, served)))

    def current(self) -> int | None:
        """The version that ``chat`` and ``completions`` answer with; None between the two halves of a promotion."""
        pins = {pinned_version(read_config(self.root / ensemble), PAIR) for ensemble in ENSEMBLES}
        return pins.pop() if len(pins) == 1 else None

    def shares(self) -> dict[int, int]:
        """Percents of the requests by version; empty where the current one has them all."""
        return shares(read_config(self.root / names.CHAT))

    def release(self, version: int) -> Release:
        return Release.load(self.root / names.GENERATE / str(version))

    def is_made_of(self, version: int, overrides: Overrides, base: int) -> bool:
        """Whether ``version`` is what :meth:`write` would make of ``base``."""
        return version in self.versions() and all(
            Release.load(self.root / model / str(version))
            == Release.parse(overridden(self.root / model / str(base), overrides))
            for model in PAIR
        )

    def write(self, version: int, overrides: Overrides, base: int) -> None:
        """The pair of a new version: that of ``base`` with other values. Not yet served."""
        for model in PAIR:
            target = self.root / model / str(version)
            if target.exists():
                continue
            with published(target) as folder:
                source = self.root / model / str(base)
                shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
                rewrite_release(folder, overrides, by="heptagram repo add")

    def serve(self, version: int, *, wanted: bool) -> None:
        """Have Triton load ``version`` from now on, or not any more."""
        others = [each for each in self.served() if each != version]
        for model in PAIR:
            config = read_config(self.root / model)
            serve_versions(config, [*others, version] if wanted else others)
            write_config(self.root / model, config)

    def pin(self, ensemble: str, version: int) -> None:
        """Make ``ensemble`` answer with ``version``."""
        self._pin(ensemble, self.root / ensemble, version)

    def share(self, ensemble: str, weights: Mapping[int, int]) -> None:
        """Share the requests to ``ensemble`` among versions; with empty ``weights`` the current one has them all."""
        config = read_config(self.root / ensemble)
        share(config, weights)
        write_config(self.root / ensemble, config)

    def pin_beside(self, version: int) -> None:
        """The ensembles that answer with ``version`` whatever is current."""
        for ensemble, own in zip(ENSEMBLES, pinned_ensembles(version), strict=True):
            self._pin(ensemble, self.root / own, version)

    def has_pinned(self, version: int) -> bool:
        """Whether they are there."""
        return all((self.root / own / CONFIG).exists() for own in pinned_ensembles(version))

    def remove_pinned(self, version: int) -> None:
        """Remove them; the configuration first, as it makes a folder a model."""
        for own in pinned_ensembles(version):
            (self.root / own / CONFIG).unlink(missing_ok=True)
            shutil.rmtree(self.root / own, ignore_errors=True)

    def remove(self, version: int) -> None:
        """Delete the pair of a version that is not served."""
        for model in PAIR:
            shutil.rmtree(self.root / model / str(version), ignore_errors=True)
        for ensemble in ENSEMBLES:
            shutil.rmtree(self.root / ensemble / str(version), ignore_errors=True)

    def _pin(self, ensemble: str, folder: Path, version: int) -> None:
        config = read_config(self.root / ensemble)
        config.name = folder.name
        pin(config, PAIR, version)
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
        write_config(folder, config)

    def _folders(self, model: str) -> set[int]:
        return {int(path.name) for path in (self.root / model).iterdir() if path.is_dir() and path.name.isdecimal()}


def pinned_ensembles(version: int) -> tuple[str, ...]:
    """Names of the ensembles that are pinned to ``version``."""
    return tuple(names.pinned(ensemble, version) for ensemble in ENSEMBLES)
