"""What comes before the start of ``heptagram serve``: repository, checkpoints, and whether there is a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heptagram_backend.checkpoint import resolve
from heptagram_backend.release import Release
from heptagram_backend.server.arguments import ServeOptions
from heptagram_backend.server.checks import check_path
from heptagram_backend.server.gateway_options import missing_package
from heptagram_backend.server.hints import FRONT_MODEL
from heptagram_backend.server.launch import models_of
from heptagram_backend.server.model import values_for
from heptagram_backend.server.progress import Progress
from heptagram_backend.server.repository import project_repository, releases_of, write_repository


@dataclass(frozen=True, slots=True)
class Prepared:
    """What will be served: a repository, its models, the compute threads of its engines, the name of its release.

    ``openai_port`` is None where no gateway will be started.
    """

    repository: Path
    models: Sequence[str]
    threads: int
    served: str | None
    openai_port: int | None

    @property
    def reserved(self) -> dict[str, int]:
        return {} if self.openai_port is None else {"--openai-port": self.openai_port}


def prepare(options: ServeOptions, progress: Progress) -> Prepared:
    """Make what was asked for ready to be served.

    Raises:
        LaunchError: there is nothing to serve.
        ReleaseError: a release or its checkpoint is wrong.
    """
    repository = options.model_repository or _own_repository(options, progress)
    models = models_of(repository)
    releases = releases_of(repository)
    for checkpoint, adapter in {(release.checkpoint, release.adapter): None for release in releases.values()}:
        _resolve(checkpoint, adapter, progress)
    return Prepared(
        repository=repository,
        models=models,
        threads=max((release.engine.threads for release in releases.values()), default=1),
        served=_name(releases),
        openai_port=_openai_port(options, models, progress),
    )


def _name(releases: Mapping[Path, Release]) -> str | None:
    """The name of the newest version."""
    newest = max(releases, key=lambda path: (len(path.parent.name), path.parent.name), default=None)
    return None if newest is None else releases[newest].served_model_name


def _openai_port(options: ServeOptions, models: Sequence[str], progress: Progress) -> int | None:
    """The gateway's port; None, and why is said, where there can be no gateway."""
    if options.openai_port is None:
        return None
    if FRONT_MODEL not in models:
        progress.say(f"no OpenAI API: the repository has no model {FRONT_MODEL!r}")
        return None
    if missing := missing_package():
        progress.say(f"no OpenAI API: {missing} is not installed; pip install 'heptagram[gateway]'")
        return None
    return options.openai_port


def _resolve(checkpoint: str, adapter: str | None, progress: Progress) -> Path:
    progress.say(f"checking checkpoint {checkpoint}")
    folder = resolve(checkpoint, adapter, report=progress.say_alone)
    check_path("the checkpoint", folder)
    return folder


def _own_repository(options: ServeOptions, progress: Progress) -> Path:
    """The project's repository, or a copy of it for another checkpoint or with other values."""
    source, overrides = project_repository(), options.overrides
    if options.model is not None:
        overrides = values_for(options.model, _resolve(options.model, overrides.adapter, progress), overrides)
    return write_repository(source, overrides) if overrides else source
