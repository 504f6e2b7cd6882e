"""What a repository holds and what its server makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heptagram_backend.rollout.files import PAIR, RolloutFiles
from heptagram_backend.rollout.journal import Journal
from heptagram_backend.rollout.rollout import explain

# What Triton's index says of a version, worst first: a pair is as good as its worse half.
_STATES = ("UNAVAILABLE", "LOADING", "UNLOADING", "READY")


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """``served``: the files say so. ``state`` is Triton's, ``in_flight`` its requests; None where it was not asked."""

    version: int
    model: str
    checkpoint: str
    current: bool
    served: bool
    state: str | None
    in_flight: int | None


@dataclass(frozen=True, slots=True)
class RepositoryStatus:
    """``previous`` is where a rollback goes, ``pending`` explains a command that was cut short."""

    current: int | None
    previous: int | None
    pending: str | None
    versions: tuple[VersionStatus, ...]


def status_of(
    files: RolloutFiles,
    states: Mapping[tuple[str, str], str] | None,
    in_flight: Mapping[int, int] | None,
) -> RepositoryStatus:
    """Put files, journal and the server's answers together; None stands for a server that does not answer."""
    journal = Journal.read(files.root)
    current, served = files.current(), files.served()
    return RepositoryStatus(
        current=current,
        previous=journal.rollback_target,
        pending=explain(journal.pending) if journal.pending else None,
        versions=tuple(
            VersionStatus(
                version=version,
                model=(release := files.release(version)).served_model_name,
                checkpoint=release.checkpoint,
                current=version == current,
                served=version in served,
                state=None if states is None else _worse(states, version),
                in_flight=None if in_flight is None else in_flight.get(version, 0),
            )
            for version in files.versions()
        ),
    )


def _worse(states: Mapping[tuple[str, str], str], version: int) -> str:
    return min((states.get((model, str(version)), _STATES[0]) for model in PAIR), key=_STATES.index)
